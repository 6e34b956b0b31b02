"""Stable-Baselines3's own vector environments as the environment of an agent; see `training/test_vec_envs.py`."""

import gymnasium
import numpy as np
import pytest

from velocirl import PPO, evaluate, evaluate_policy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_torch_thread")]
SMALL = {"horizon": 16, "minibatch_size": 32, "epochs": 1, "hidden": (4,), "threads": 1, "seed": 1, "device": "python"}


@pytest.fixture(autouse=True)
def _installed():
    pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'velocirl[clients]'")


def test_processes_step_where_they_are():
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize

    env = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, start_method="fork")
    agent = PPO(VecNormalize(VecFrameStack(env, 3), norm_reward=False), **SMALL).learn(320)
    assert agent.observation_space.shape == (12,)
    assert agent.config.normalise_observations
    assert sum(agent.recent.lengths) <= 320
    assert len(evaluate(agent, VecFrameStack(env, 3), episodes=4).returns) == 4
    env.close()


def test_statistics_go_on_here(tmp_path):
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, monitor_dir=str(tmp_path)), gamma=0.9)
    stable_baselines3.PPO("MlpPolicy", env, n_steps=64, batch_size=64).learn(128)
    with pytest.warns(UserWarning, match=r"Monitor writes no file here: learn\(run_dir=...\)"):
        agent = PPO("MlpPolicy", env, **SMALL)
    count, mean, squares = agent.observation_moments.state
    np.testing.assert_allclose(count, env.obs_rms.count)
    np.testing.assert_allclose(mean, env.obs_rms.mean)
    np.testing.assert_allclose(squares / count, env.obs_rms.var)
    assert agent.config.gamma == 0.9
    agent.learn(32)
    assert evaluate_policy(agent, env, 2)[0] < -100  # of rewards as they are
    env.close()
