"""Vector environments of Stable-Baselines3 as the environment of an agent; `tests/vector/clients` has its own ones."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vec_envs import DummyVecEnv, VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from velocirl import A2C, PPO, SAC, QLearning, evaluate, evaluate_policy

SMALL = {"horizon": 8, "minibatch_size": 16, "epochs": 1, "hidden": (4,), "threads": 1, "seed": 1, "device": "python"}

SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}


def pendulum():
    return gymnasium.make("Pendulum-v1", max_episode_steps=6)


def carts(count):
    return [lambda: gymnasium.make("CartPole-v1")] * count


def learned(env, steps=96):
    return PPO(env, **SMALL).learn(steps)


def test_a_dummy_one_is_the_list_of_its_environments():
    agent, other = learned(DummyVecEnv(carts(3))), learned([make() for make in carts(3)])
    assert agent.config == other.config
    assert agent.config.num_envs == 3
    assert agent.source.id == other.source.id == "given:CartPole-v1"
    assert agent.parameters.tobytes() == other.parameters.tobytes()
    assert evaluate(agent, episodes=3, seed=2).returns.tolist() == evaluate(other, episodes=3, seed=2).returns.tolist()


def test_whoever_gives_several_is_not_told_how_many_there_are():
    rest = {name: value for name, value in SMALL.items() if name != "horizon"}
    agent = PPO("MlpPolicy", DummyVecEnv(carts(3)), n_steps=8, **rest)  # a warning would be an error
    assert (agent.config.num_envs, agent.config.horizon) == (3, 8)


@pytest.mark.parametrize("wrapper", [lambda env: env, VecMonitor, VecEnvWrapper])
def test_any_other_steps_where_it_is(wrapper):
    """Cut off episodes, and those that end by themselves, are those of Gymnasium's vector environment."""
    for make in (pendulum, carts(1)[0]):
        agent, other = learned(wrapper(VecEnv([make] * 2))), learned(SyncVectorEnv([make] * 2, **SAME_STEP))
        assert agent.source.id.startswith("given:Vec")
        assert list(agent.recent.returns) == pytest.approx(list(other.recent.returns), rel=1e-5)
        assert list(agent.recent.lengths) == list(other.recent.lengths) != []
        np.testing.assert_allclose(agent.parameters, other.parameters, atol=1e-5)
    with pytest.raises(ValueError, match="cannot be copied: say where to evaluate"):
        evaluate(agent)
    assert len(evaluate(agent, wrapper(VecEnv(carts(2))), episodes=4).returns) == 4


def test_what_is_normalized_becomes_settings():
    config = PPO(VecNormalize(DummyVecEnv([pendulum])), **SMALL).config
    assert (config.normalise_observations, config.normalise_rewards, config.gamma) == (True, True, 0.99)
    config = A2C(VecNormalize(VecEnv([pendulum]), norm_reward=False, gamma=0.5), **SMALL).config
    assert (config.normalise_observations, config.normalise_rewards) == (True, False)
    assert config.gamma == A2C("gym:Pendulum-v1", **SMALL).config.gamma
    config = PPO(VecNormalize(VecMonitor(DummyVecEnv([pendulum]))), **SMALL, normalise_rewards=False).config
    assert (config.normalise_observations, config.normalise_rewards) == (True, False)
    config = PPO(VecNormalize(DummyVecEnv([pendulum]), norm_obs=False, gamma=0.9), **SMALL).config
    assert (config.normalise_observations, config.normalise_rewards, config.gamma) == (False, True, 0.9)


def test_statistics_are_what_an_agent_begins_with():
    env = VecNormalize(DummyVecEnv([pendulum] * 2))
    assert PPO(env, **SMALL).observation_moments.state.tolist() == np.zeros((3, 3)).tolist()
    env.obs_rms.mean, env.obs_rms.var, env.obs_rms.count = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), 100.0
    env.ret_rms.mean, env.ret_rms.var, env.ret_rms.count = np.array(-3.0), np.array(2.0), 100.0
    agent = PPO(env, **SMALL)
    assert agent.observation_moments.state.tolist() == [[100.0] * 3, [1.0, 2.0, 3.0], [400.0, 500.0, 600.0]]
    assert agent.reward_moments.state[:, 0].tolist() == [100.0, -3.0, 200.0]
    agent.prepare()
    seen = agent.learner.task.observation_moments.inverse_deviation
    np.testing.assert_allclose(seen, 1 / np.sqrt([4.0, 5.0, 6.0]))
    agent.learn(32)
    assert agent.observation_moments.state[0].tolist() == [132.0] * 3
    assert agent.reward_moments.state[0, 0] == 132.0


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"clip_obs": 5.0}, {}, "clip_obs=5 of VecNormalize: normalized numbers are clipped at 10 here"),
        ({"clip_reward": 1.0}, {}, "clip_reward=1 of VecNormalize"),
        ({"gamma": 0.9}, {"gamma": 0.8}, "gamma=0.9 of VecNormalize is not the agent's gamma=0.8"),
        ({"training": False}, {}, "training=False of VecNormalize: here training updates the statistics"),
    ],
)
def test_what_it_does_otherwise_is_said(options, settings, message):
    with pytest.warns(UserWarning, match=message):
        PPO(VecNormalize(DummyVecEnv([pendulum]), **options), **SMALL, **settings)


def test_what_cannot_be_a_setting_is_refused():
    with pytest.raises(ValueError, match=r"SAC has no normalise_observations, .* without it, and write scale_obs"):
        SAC(VecNormalize(DummyVecEnv([pendulum])), device="python")
    SAC(VecNormalize(DummyVecEnv([pendulum]), norm_obs=False, norm_reward=False), device="python")
    with pytest.raises(ValueError, match="VecNormalize is inside of VecEnvWrapper: put it outermost"):
        PPO(VecEnvWrapper(VecNormalize(DummyVecEnv([pendulum]))))
    with pytest.raises(ValueError, match="in a VecNormalize twice"):
        PPO(VecNormalize(VecNormalize(DummyVecEnv([pendulum]))))
    with pytest.raises(ValueError, match="params are for environments that are made here"):
        PPO(DummyVecEnv([pendulum]), params={"g": 5.0})


class ActionMasker(gymnasium.Wrapper):
    """Forbids one of two actions."""

    def action_masks(self):
        return np.array([True, False])


def test_masks_are_asked_for():
    agent = PPO(VecEnv([lambda: ActionMasker(gymnasium.make("CartPole-v1"))] * 2), **SMALL).learn(64)
    assert agent.source.masked
    assert max(agent.recent.lengths) < 15  # to one side only


def test_tables_learn_in_them():
    env = DummyVecEnv([lambda: gymnasium.make("CliffWalking-v1", max_episode_steps=50)] * 2)
    assert QLearning(env, seed=0).learn(500).num_envs == 2


def test_evaluate_policy_gives_the_mean_and_the_deviation():
    agent = PPO("Counter-v0", num_envs=2, **SMALL).learn(32)
    result = evaluate(agent, episodes=5)
    assert evaluate_policy(agent, None, n_eval_episodes=5) == (result.mean_return, result.std_return)
    returns, lengths = evaluate_policy(agent, n_eval_episodes=5, return_episode_rewards=True)
    assert (returns, lengths) == (result.returns.tolist(), result.lengths.tolist())
    env = VecNormalize(DummyVecEnv(carts(2)), training=False, norm_reward=False)
    cart = PPO(DummyVecEnv(carts(2)), **SMALL)
    assert evaluate_policy(cart, env, 4)[0] >= 8.0
    with pytest.raises(AssertionError, match=r"mean return below threshold: .* < 1000"):
        evaluate_policy(agent, reward_threshold=1000.0)
    with pytest.raises(ValueError, match=r"evaluate_policy has no render=True: velocirl\.record_video"):
        evaluate_policy(agent, render=True)


def test_an_agent_in_them_is_saved_and_not_pickled(tmp_path):
    env = DummyVecEnv(carts(2))
    agent = learned(env, 32)
    again = PPO.load(agent.save(tmp_path / "agent"), env=env).learn(32)
    assert (again.config, again.steps) == (agent.config, 64)
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(pickle.PicklingError, match="given:CartPole-v1 was given as an object"):
            way(agent)
