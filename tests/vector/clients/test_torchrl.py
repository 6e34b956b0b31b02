"""torchrl: its checker on single environments and fleets, and what it makes of the ends of episodes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import velocirl

SAME_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_torch_thread")]
every_environment = pytest.mark.parametrize("name", velocirl.list_envs())


@pytest.fixture
def torchrl():
    pytest.importorskip("torchrl", reason="needs torchrl: pip install 'velocirl[clients]'")
    import torchrl.envs.utils

    return torchrl.envs


@every_environment
def test_its_checker_accepts_a_single_environment(name, torchrl):
    torchrl.utils.check_env_specs(torchrl.GymEnv(f"velocirl/{name}"))  # by its id, as torchrl makes environments
    torchrl.utils.check_env_specs(torchrl.GymWrapper(velocirl.make(name)))


@pytest.mark.parametrize("mode", [SAME_STEP, DISABLED], ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", [*velocirl.list_envs(), "gym:CartPole-v1", "gym:FrozenLake-v1"])
def test_its_checker_accepts_a_fleet(name, mode, torchrl):
    envs = velocirl.make_vec(name, 3, seed=1, autoreset_mode=mode)
    if mode == SAME_STEP and isinstance(envs.single_observation_space, Discrete):
        # torchrl has no one-hot final observation: it refuses Gymnasium's own vector as well.
        theirs = SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 3, autoreset_mode=mode)
        for refused in (theirs, envs):
            with pytest.raises(AssertionError, match="spec check failed"):
                torchrl.utils.check_env_specs(torchrl.GymWrapper(refused))
    else:
        torchrl.utils.check_env_specs(torchrl.GymWrapper(envs))


@pytest.mark.parametrize("mode", [SAME_STEP, DISABLED], ids=lambda mode: mode.name)
def test_a_rollout_has_the_last_observation_before_the_first_of_the_next_episode(mode, torchrl):
    lengths = np.array([3, 5])
    envs = torchrl.GymWrapper(
        velocirl.make_vec("Counter-v0", 2, seed=1, params={"length": lengths}, autoreset_mode=mode),
        categorical_action_encoding=True,
    )
    rollout = envs.rollout(20, break_when_any_done=False)
    for copy, length in enumerate(lengths):
        seen = rollout["observation"][copy, :, 0].tolist()
        following = rollout["next", "observation"][copy, :, 0].tolist()
        assert seen == [float(step % length) for step in range(20)]
        assert following == [float(step % length + 1) for step in range(20)]
        done = rollout["next", "done"][copy, :, 0].tolist()
        assert done == [step % length == length - 1 for step in range(20)]


def test_ends_of_time_are_truncations(torchrl):
    rollout = torchrl.GymEnv("velocirl/Pendulum-v1", max_episode_steps=30).rollout(100)
    assert rollout.batch_size == (30,)
    assert rollout["next", "truncated"][-1].item()
    assert not rollout["next", "terminated"][-1].item()
