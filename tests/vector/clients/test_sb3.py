"""Stable-Baselines3 and sb3-contrib: their checker, their vectors as the oracle of ours, their training on fleets."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import velocirl
from velocirl.vector.host.vector_env import HostVectorEnv

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_torch_thread")]
SEEDS = [21, 22, 23]


@pytest.fixture(autouse=True)
def _installed():
    pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'velocirl[clients]'")


def adapted(environment, copies=3, **options):
    return velocirl.adapters.sb3_vec_env(velocirl.make_vec(environment, copies, **options))


@pytest.mark.parametrize("name", velocirl.list_envs())
def test_its_checker_has_nothing_to_say(name, recwarn):
    from stable_baselines3.common.env_checker import check_env

    check_env(velocirl.make(name))
    # What it recommends of spaces is a choice; everything else would be a fault.
    recommended = ("We recommend you to use a symmetric", "It seems that your observation", "The minimal resolution")
    assert [str(one.message) for one in recwarn if not any(part in str(one.message) for part in recommended)] == []


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "TicTacToe-v1", "gym:CartPole-v1"])
def test_it_is_their_vector_over_the_same_environments(name):
    """Observations, rewards, ends and infos, step by step, as of DummyVecEnv with a Monitor around each environment."""
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    ours = adapted(name)
    theirs = DummyVecEnv([lambda: Monitor(velocirl.make(name))] * 3)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for vector in (ours, theirs):
        vector._seeds = SEEDS
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    draws = np.random.default_rng(0)
    ends = 0
    for _ in range(450):
        actions = np.array([_legal(ours, copy, draws) for copy in range(3)])
        mine, expected = ours.step(actions), theirs.step(actions)
        for one, other in zip(mine[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        for copy in np.flatnonzero(mine[2]):
            ends += 1
            told, wanted = mine[3][copy], expected[3][copy]
            np.testing.assert_array_equal(told["terminal_observation"], wanted["terminal_observation"])
            assert told["TimeLimit.truncated"] == wanted["TimeLimit.truncated"]
            assert told["episode"]["r"] == pytest.approx(wanted["episode"]["r"], abs=1e-4)
            assert told["episode"]["l"] == wanted["episode"]["l"]
    assert ends >= 6
    ours.close()
    theirs.close()


def _legal(vector, copy, draws):
    if not vector.has_attr("action_masks"):
        return vector.action_space.sample()
    return draws.choice(np.flatnonzero(vector.env_method("action_masks", indices=copy)[0]))


def test_a_seed_is_that_of_each_copy_as_they_mean_it():
    envs, again = adapted("CartPole-v1"), adapted("CartPole-v1")
    assert envs.seed(5) == [5, 6, 7]
    again.seed(5)
    first = envs.reset()
    np.testing.assert_array_equal(first, again.reset())
    np.testing.assert_array_equal(first, velocirl.make_vec("CartPole-v1", 3).reset(seed=[5, 6, 7])[0])
    assert not np.array_equal(envs.reset(), first)  # a seed holds for one reset


def test_options_reach_the_next_reset():
    envs = adapted("MountainCar-v0")
    envs.set_options({"low": 0.3, "high": 0.4})
    assert (envs.reset()[:, 0] >= 0.3).all()
    assert (envs.reset()[:, 0] < 0.0).all()
    envs.set_options([{"low": 0.1}, {}, {}])
    with pytest.raises(ValueError, match="give set_options one dict"):
        envs.reset()


def test_attributes_and_methods_of_copies():
    from gymnasium.wrappers import TimeLimit
    from stable_baselines3.common.monitor import Monitor

    envs = adapted("CartPole-v1", render_mode="rgb_array")
    envs.reset()
    assert envs.get_attr("gravity", indices=[0, 2]) == [pytest.approx(9.8)] * 2
    envs.set_attr("gravity", 5.0, indices=1)
    envs.set_attr("push", 7.0)
    assert envs.get_attr("gravity") == [pytest.approx(9.8), 5.0, pytest.approx(9.8)]
    assert envs.get_attr("push") == [7.0] * 3
    assert envs.render_mode == "rgb_array"
    assert envs.render().shape == (800, 1200, 3)  # their tiles, two by two
    assert envs.env_is_wrapped(Monitor) == [True] * 3  # as for what it does
    assert envs.env_is_wrapped(TimeLimit) == [False] * 3
    assert not envs.has_attr("action_masks")
    assert adapted("gym:CartPole-v1", 2).env_is_wrapped(TimeLimit) == [True] * 2


def test_infos_of_the_environments_go_to_the_episode_that_they_belong_to():
    class Told(velocirl.make("gym:CartPole-v1").unwrapped.__class__):
        def reset(self, **more):
            self.steps = 0
            return super().reset(**more)[0], {"begun": True}

        def step(self, action):
            self.steps += 1
            return *super().step(action)[:4], {"steps": self.steps}

    envs = velocirl.adapters.sb3_vec_env(HostVectorEnv(Told, 2, seed=1, infos=True))
    envs.reset()
    assert envs.reset_infos == [{"begun": True}] * 2
    for _ in range(30):
        envs.reset_infos = [{}, {}]
        _, _, dones, infos = envs.step(np.ones(2, int))
        for copy in range(2):
            assert envs.reset_infos[copy] == ({"begun": True} if dones[copy] else {})
            assert "begun" not in infos[copy]
            if dones[copy]:
                assert infos[copy]["steps"] == infos[copy]["episode"]["l"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"autoreset_mode": AutoresetMode.NEXT_STEP}, "SAME_STEP"), ({"copy": False}, "make the fleet with copy=True")],
)
def test_fleets_that_would_mislead_it_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        adapted("CartPole-v1", **options)


@pytest.mark.parametrize("name", ["CartPole-v1", "gym:CartPole-v1"])
def test_ppo_learns_on_a_fleet(name):
    """Seed 0, 25,000 steps: more than 150 of 500, where a policy that acts at random reaches 22."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    settings = {"n_steps": 128, "batch_size": 256, "n_epochs": 6, "learning_rate": 2e-3, "gamma": 0.98}
    model = PPO("MlpPolicy", adapted(name, 8), seed=0, device="cpu", **settings).learn(25_000)
    mean, _ = evaluate_policy(model, adapted(name, 8, seed=1), n_eval_episodes=16)
    assert mean > 150
    assert len(model.ep_info_buffer) == 100


def test_algorithms_with_a_memory_train_on_a_fleet():
    from stable_baselines3 import DQN, SAC

    settings = {"learning_starts": 64, "seed": 0, "device": "cpu"}
    model = SAC("MlpPolicy", adapted("Pendulum-v1", 4, max_episode_steps=50), **settings).learn(800)
    assert {episode["l"] for episode in model.ep_info_buffer} == {50}
    assert model.replay_buffer.timeouts[49].all()
    assert not model.replay_buffer.timeouts[:49].any()
    model = DQN("MlpPolicy", adapted("CartPole-v1", 4), **settings).learn(400)
    assert model.num_timesteps == 400


def test_masks_of_a_fleet_are_obeyed_by_sb3_contrib():
    """TicTacToe punishes what is not legal: with its masks no game is lost that way."""
    contrib = pytest.importorskip("sb3_contrib", reason="needs sb3-contrib: pip install 'velocirl[clients]'")
    envs = adapted("TicTacToe-v1", 4)
    chosen = []
    step = envs.step_async
    envs.step_async = lambda actions: (
        chosen.extend(zip(np.stack(envs.env_method("action_masks")), actions, strict=True)),
        step(actions),
    )
    contrib.MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=64, seed=0, device="cpu").learn(512)
    assert len(chosen) == 512
    assert all(mask[action] for mask, action in chosen)
    single = contrib.MaskablePPO("MlpPolicy", velocirl.make("TicTacToe-v1"), n_steps=32, batch_size=32, device="cpu")
    assert single.learn(32).num_timesteps == 32
