"""Agents and `evaluate` take environments as people have them: objects, functions, lists, vectors in any mode."""

import threading
import time
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import velocirl
from velocirl import DQN, PPO, QLearning, evaluate
from velocirl.vector.host.vector_env import HostVectorEnv

SMALL = {"horizon": 16, "minibatch_size": 16, "hidden": (8, 8), "seed": 1, "device": "python"}


class Walk(gymnasium.Env):
    """A random walk with a drift that the action chooses; it ends at an edge, and is cut off after nine steps."""

    observation_space = spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, push=1.0):
        self.push, self.resets = push, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        self.resets += 1
        return self._seen(), {}

    def step(self, action):
        self.place += self.push * (int(action) - 1) + self.np_random.normal(0, 0.5)
        self.steps += 1
        ended = abs(self.place) > 4
        return self._seen(), 1.0 - abs(self.place), ended, self.steps >= 9 and not ended, {}

    def _seen(self):
        return np.array([np.clip(self.place, -5, 5)], np.float32)


class Masked(Walk):
    """Never goes down, and says so as sb3-contrib has it."""

    def step(self, action):
        assert action != 0, "an action that the mask forbids"
        return super().step(action)

    def action_masks(self):
        return np.array([False, True, True])


def trained(env, **more):
    agent = PPO(env, **{**SMALL, **more})
    agent.learn(2 * agent.config.num_envs * SMALL["horizon"])
    return agent


@pytest.fixture
def registered():
    gymnasium.register("Walk-v0", Walk)
    yield "gym:Walk-v0"
    del gymnasium.registry["Walk-v0"]


def test_objects_functions_and_lists_train_as_an_id_does(registered):
    """By compiled learners; the other tests here need none."""
    learn = partial(trained, device="cpu")
    expected = learn(registered, num_envs=3)
    given = {
        "object": lambda: learn(Walk(), num_envs=3),
        "class": lambda: learn(Walk, num_envs=3),
        "function": lambda: learn(lambda: Walk(), num_envs=3),
        "list of objects": lambda: learn([Walk(), Walk(), Walk()]),
        "list of functions": lambda: learn([Walk] * 3),
        "workers": lambda: learn(Walk(), num_envs=3, workers=3),
        "parameters": lambda: learn(Walk, num_envs=3, params={"push": 1.0}),
    }
    for name, make in given.items():
        agent = make()
        assert agent.config.num_envs == 3, name
        np.testing.assert_array_equal(agent.parameters, expected.parameters, err_msg=name)


class Slow(Walk):
    """As a simulator that takes its time."""

    def step(self, action):
        time.sleep(1e-3)
        return super().step(action)


def test_copies_that_take_their_time_step_in_processes(registered, monkeypatch):
    """Which of the two it is makes no difference to what is learnt."""
    monkeypatch.setattr("velocirl.training.source.available_cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    quick = trained(registered, num_envs=3)
    assert type(quick.learner.envs) is HostVectorEnv
    gymnasium.register("Slow-v0", Slow)
    try:
        slow, here = (trained("gym:Slow-v0", num_envs=3, workers=workers) for workers in (None, 0))
        alone, given = trained("gym:Slow-v0", num_envs=1), trained(lambda: Slow(), num_envs=3)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        one_of_many = trained("gym:Slow-v0", num_envs=3)
        monkeypatch.delenv("OMP_NUM_THREADS")
        monkeypatch.setattr("velocirl.vector.host.workers.pickle_source", refuse)
        refused = trained("gym:Slow-v0", num_envs=3)
    finally:
        del gymnasium.registry["Slow-v0"]
    assert slow.learner.envs.gauges()["workers"] == 2
    for agent in (here, alone, given, one_of_many, refused):
        assert type(agent.learner.envs) is HostVectorEnv
    for agent in (slow, here, refused):
        np.testing.assert_array_equal(agent.parameters, quick.parameters)


def refuse(*_):
    raise TypeError("cannot be pickled")


def test_vectors_of_every_mode_train_alike():
    expected = trained(SyncVectorEnv([Walk] * 3, autoreset_mode=AutoresetMode.SAME_STEP))
    assert expected.source.id == "given:SyncVectorEnv"
    assert expected.recent.lengths
    for mode in AutoresetMode:
        for make in (
            lambda mode=mode: SyncVectorEnv([Walk] * 3, autoreset_mode=mode),
            lambda mode=mode: HostVectorEnv(Walk, 3, autoreset_mode=mode),
        ):
            agent = trained(make())
            np.testing.assert_array_equal(agent.parameters, expected.parameters, err_msg=mode.name)
            assert list(agent.recent.lengths) == list(expected.recent.lengths)
            np.testing.assert_allclose(list(agent.recent.returns), list(expected.recent.returns), rtol=1e-5)


class Keeping(Walk):
    """Keeps the actions that it was given."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        super().__init__()
        self.kept = []

    def step(self, action):
        self.kept.append((action, action.copy()))
        return super().step(float(action[0]) + 1)


def test_actions_that_a_vector_keeps_stay_as_they_were():
    envs = SyncVectorEnv([Keeping] * 2)
    trained(envs)
    for env in envs.envs:
        assert env.kept
        assert all(kept == was for kept, was in env.kept)


def test_a_vector_in_processes():
    envs = AsyncVectorEnv([Walk] * 3)
    agent = trained(envs)
    expected = trained(SyncVectorEnv([Walk] * 3))
    np.testing.assert_array_equal(agent.parameters, expected.parameters)
    envs.step(np.zeros(3, int))  # who made it closes it
    envs.close()


def test_other_algorithms_take_them_too():
    assert DQN(Walk(), seed=1, hidden=(8, 8), learning_starts=50, device="python").learn(100).steps >= 100
    lake = gymnasium.make("FrozenLake-v1")
    expected = QLearning("gym:FrozenLake-v1", seed=1).learn(500).table.values
    np.testing.assert_array_equal(QLearning(lake, seed=1).learn(500).table.values, expected)
    assert QLearning(SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 2), seed=1).learn(500).steps == 500
    with pytest.raises(ValueError, match='is made already, and steps as its maker chose: use runtime="serial"'):
        QLearning(SyncVectorEnv([lambda: lake]), runtime="processes", workers=1).learn(10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: velocirl.make_vec("CartPole-v1", 6, params={"gravity": 5.0}),
        lambda: velocirl.make_vec("CartPole-v1", 6, params={"gravity": 5.0}, autoreset_mode=AutoresetMode.NEXT_STEP),
        lambda: velocirl.make("CartPole-v1", gravity=5.0),
        lambda: gymnasium.make("velocirl/CartPole-v1", gravity=5.0),
    ],
)
def test_our_own_are_compiled_whatever_they_come_in(make):
    agent = PPO(make(), **SMALL)
    assert agent.source.native is velocirl.engine.registry.find("CartPole-v1")
    assert agent.config.params == {"gravity": 5.0}
    assert agent.config.num_envs in (6, 32)


def test_parameters_of_single_copies_and_draws_are_kept():
    fleet = velocirl.make_vec("CartPole-v1", 3, params={"gravity": [5.0, 6.0, 7.0], "push": velocirl.uniform(8, 12)})
    agent = PPO(fleet, **SMALL)
    assert agent.source.params == {"gravity": [5.0, 6.0, 7.0], "push": velocirl.uniform(8, 12)}
    assert agent.config.params == {"gravity": [5.0, 6.0, 7.0], "push": "uniform(8.0, 12.0)"}
    assert agent.config.num_envs == 3
    agent.learn(48)


def test_the_time_limit_of_ours_is_kept():
    agent = trained(velocirl.make("CartPole-v1", max_episode_steps=5), num_envs=4)
    assert max(agent.recent.lengths) == 5


def test_wrappers_are_kept_and_the_object_stays_as_it_is():
    counted = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(Walk(), 4))
    agent = trained(counted, num_envs=2)
    assert max(agent.recent.lengths) == 4
    assert counted.unwrapped.resets == 0


def test_masks_from_a_method_are_followed():
    for env in (Masked, [Masked(), Masked()], SyncVectorEnv([Masked] * 2)):
        agent = trained(env, **({"num_envs": 2} if env is Masked else {}))
        assert agent.source.masked
        evaluate(agent, episodes=3, seed=0)


def test_a_function_is_a_policy():
    balanced = evaluate(lambda observation: int(observation[2] + observation[3] > 0), "CartPole-v1", 10, seed=1)
    assert balanced.mean_return > 150  # at random: about 20
    assert evaluate(lambda observation: 1, Walk, 4, seed=1).lengths.max() <= 9
    for mode in AutoresetMode:
        played = evaluate(lambda _: 1, SyncVectorEnv([Walk] * 2, autoreset_mode=mode), 4, seed=3)
        assert len(played.returns) == 4
    with pytest.raises(TypeError, match="a int cannot act: give a model with predict, or a function"):
        evaluate(3, "CartPole-v1")


def test_a_saved_agent_asks_for_its_object(tmp_path):
    agent = trained(Walk(), num_envs=2)
    path = agent.save(tmp_path / "walker")
    with pytest.raises(ValueError, match="given as an object, 'Walk': give it again as env="):
        PPO.load(path)
    assert PPO.load(path, env=Walk()).learn(32).steps == agent.steps + 32


class Stuck(Walk):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Forgetful(SyncVectorEnv):
    """Begins all episodes anew, whichever were named."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class Wide(Walk):
    observation_space = spaces.Box(-9.0, 9.0, (1,), np.float32)


BAD = {
    "cannot be copied": (Stuck, {"num_envs": 2}, TypeError, r"cannot be copied .*give a function .* lambda: Stuck"),
    "mixed": (lambda: [Walk(), Wide()], {}, ValueError, "the observation_space of the first is .*that of number 1"),
    "empty": (list, {}, ValueError, "must have one at least"),
    "no environment": (lambda: [Walk(), 3], {}, TypeError, "number 1 of the list is a int"),
    "count": (lambda: [Walk] * 3, {"num_envs": 4}, ValueError, "num_envs=4, and the environments given are 3"),
    "params": (Walk, {"params": {"push": 2.0}}, ValueError, "set them where you make yours"),
    "workers": (lambda: SyncVectorEnv([Walk]), {"workers": 1}, ValueError, "steps as its maker chose"),
    "number": (lambda: 3, {}, TypeError, "a int is no environment: give an id"),
    "reset mask": (lambda: Forgetful([Walk] * 3), {}, RuntimeError, "changed copies that were not named: use"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_used_is_told_in_a_sentence(kind):
    make, config, error, sentence = BAD[kind]
    with pytest.raises(error, match=sentence):
        trained(make(), **config)


def test_copies_are_made_singly_of_a_vector_that_cannot_begin_one_episode_alone():
    """As Gymnasium's own vector of CartPoles cannot: its reset begins all of them."""
    envs = gymnasium.make_vec("CartPole-v1", 3, sutton_barto_reward=True)
    with pytest.warns(UserWarning, match="CartPoleVectorEnv begins .*NEXT_STEP.* in 3 copies instead"):
        agent = PPO(envs, seed=1)
    assert (agent.config.num_envs, agent.source.id) == (3, "given:CartPoleVectorEnv")
    agent.learn(400)
    assert evaluate(agent, episodes=4, seed=1).mean_return == -1  # the arguments went along: by default it is 1 a step

    # Of one with a wrapper around it, copies made so would lack that.
    with pytest.raises(RuntimeError, match="or give what makes its copies"):
        PPO(gymnasium.wrappers.vector.ClipReward(envs, -1.0, 1.0))


def test_a_vector_must_say_its_mode():
    class Silent(VectorEnv):
        num_envs, render_mode = 2, None
        metadata: ClassVar = {}  # since ALE's vector environment writes its mode to Gymnasium's own
        single_observation_space, single_action_space = Walk.observation_space, Walk.action_space

    with pytest.raises(ValueError, match=r"Silent does not say when .*metadata\['autoreset_mode'\]"):
        PPO(Silent())


def test_one_in_the_middle_of_an_episode_is_left_there():
    env = gymnasium.wrappers.TimeLimit(Walk(), 9)
    env.reset(seed=1)
    env.step(1)
    place = env.unwrapped.place
    with pytest.warns(UserWarning, match="in the middle of an episode; agents act in copies of it"):
        trained(env, num_envs=2)
    assert env.unwrapped.place == place
