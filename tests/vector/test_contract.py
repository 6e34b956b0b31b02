"""Gymnasium environments that break the contract: one sentence with class and line, wherever they are stepped."""

import copy
import linecache
import pickle
import re
import sys

import gymnasium
import numpy as np
import pytest
from breaches import BREACHES, OBSERVATION, FourValues, Late, NoneReward, OutOfSpace, Raises, Sound
from endless import Endless
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit, TransformObservation

import velocirl
from velocirl import DefinitionError, QLearning
from velocirl.vector.given_vector import GivenVectorEnv
from velocirl.vector.host.contract import STEPS
from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.host.worker_handle import WorkerError
from velocirl.vector.host.workers import WorkerVectorEnv

EACH = pytest.mark.parametrize(
    ("kind", "function", "said", "source"), BREACHES, ids=lambda one: getattr(one, "__name__", "")
)


def require_sentence(error, kind, function, said, source):
    """Require one sentence, its class and function first, with a line of the test's own and no exception before it."""
    first, place = str(error).split("\n")
    assert re.match(rf"{kind.__name__}: {function} {said}", first), first
    file, line, shown = re.fullmatch(r"  at (.*):(\d+): (.*)", place).groups()
    assert shown == linecache.getline(file, int(line)).strip()
    assert shown.startswith(source)
    assert error.__cause__ is None
    assert error.__suppress_context__


def stepped(envs, steps=3):
    envs.reset(seed=0)
    for _ in range(steps):
        envs.step(envs.action_space.sample())


@EACH
def test_a_breach_is_one_sentence_in_this_process(kind, function, said, source):
    with pytest.raises(DefinitionError) as raised:
        stepped(HostVectorEnv(lambda: TimeLimit(kind(), 100), 2))
    require_sentence(raised.value, kind, function, said, source)


@EACH
def test_a_breach_is_one_sentence_in_a_single_environment(kind, function, said, source):
    name = f"Breach{kind.__name__}-v0"
    gymnasium.register(name, kind, max_episode_steps=50)
    try:
        with pytest.raises(DefinitionError) as raised:
            stepped(velocirl.make(f"gym:{name}"))
    finally:
        del gymnasium.registry[name]
    require_sentence(raised.value, kind, function, said, source)


@EACH
def test_check_env_lists_a_breach_with_its_line(kind, function, said, source):
    with pytest.raises(DefinitionError, match=rf"{kind.__name__} has \d problem") as raised:
        velocirl.check_env(kind)
    assert re.search(rf"- {kind.__name__}: {function} {said}", str(raised.value))
    assert f": {source}" in str(raised.value)


def test_workers_send_the_sentence():
    with pytest.raises(DefinitionError) as raised:
        stepped(WorkerVectorEnv(NoneReward, 2, workers=2, restarts=2))
    require_sentence(raised.value, *next(one for one in BREACHES if one[0] is NoneReward))


def test_a_workers_traceback_begins_in_the_environment():
    with pytest.raises(WorkerError, match="the user's own") as raised:
        stepped(WorkerVectorEnv(Raises, 1, workers=1))
    lines = str(raised.value).split("\n")
    assert lines[1] == "Traceback (most recent call last):"
    assert "breaches.py" in lines[2]


@pytest.mark.slow
def test_collectors_send_the_sentence():
    agent = velocirl.DQN(NoneReward, num_envs=2, collectors=1, seed=0, learning_starts=8)
    with pytest.raises(DefinitionError) as raised:
        agent.learn(200)
    require_sentence(raised.value, *next(one for one in BREACHES if one[0] is NoneReward))


def test_training_evaluation_and_rollouts_say_it():
    for use in (
        lambda: velocirl.PPO(FourValues, device="python", num_envs=1, horizon=8, seed=0).learn(8),
        lambda: velocirl.evaluate(lambda _: 0, FourValues, episodes=1),
        lambda: velocirl.rollout(lambda _: 0, FourValues),
        lambda: velocirl.evaluate(lambda _: 0, SyncVectorEnv([FourValues] * 2), episodes=1),
    ):
        with pytest.raises(DefinitionError) as raised:
            use()
        require_sentence(raised.value, *next(one for one in BREACHES if one[0] is FourValues))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ((OBSERVATION, 1.0, True, {}), "returns 4 values"),
        ((OBSERVATION, None, False, False, {}), "returns the reward None"),
        ((OBSERVATION, np.ones(2), False, False, {}), "returns the reward array"),
        ((np.zeros(3, np.float32), 1.0, False, False, {}), r"returns observation of shape \(3,\)"),
        ((np.zeros(1, np.float32), 1.0, False, False, {}), r"returns observation of shape \(1,\)"),
        ((np.zeros(1, np.float32), 1.0, False, True, {}), r"returns observation of shape \(1,\)"),
        ((0.5, 1.0, False, False, {}), r"returns observation of shape \(\); its space has the shape \(2,\)"),
        ((OBSERVATION, 1.0, False, False, None), "returns info as None"),
    ],
)
def test_what_fails_later_names_the_function(fault, said):
    """After the checked steps what cannot be stored is explained, without its exact line."""
    place = f"{re.escape(sys.modules[Late.__module__].__file__)}:{Late.step.__code__.co_firstlineno}: def step"
    for make in (lambda: Late(fault), lambda: TimeLimit(Late(fault), 1000)):
        with pytest.raises(DefinitionError, match=rf"Late: step {said}[^\n]*\n  at {place}"):
            stepped(HostVectorEnv(make, 1), 60)


@pytest.mark.parametrize(
    ("space", "sound", "broken", "said"),
    [
        (
            Dict({"a": Box(-1, 1, (2,))}),
            {"a": np.zeros(2, np.float32)},
            {"a": np.zeros(1, np.float32)},
            r"observation\['a'\] of shape \(1,\)",
        ),
        (
            Tuple([Box(-1, 1, (2,)), Discrete(2)]),
            (np.zeros(2, np.float32), 1),
            (np.float32(0), 1),
            r"observation\[0\] of shape \(\)",
        ),
        (Box(0, 255, (4, 4), np.uint8), np.zeros((4, 4), np.uint8), np.zeros((4, 1), np.uint8), r"shape \(4, 1\)"),
    ],
)
def test_what_broadcasts_later_is_refused_in_every_kind_of_space(space, sound, broken, said):
    class Turning(Sound):
        observation_space, steps = space, 0

        def reset(self, *, seed=None, options=None):
            return sound, {}

        def step(self, action):
            self.steps += 1
            return sound if self.steps < 50 else broken, 1.0, False, False, {}

    envs = HostVectorEnv(Turning, 1)
    stepped(envs, 49)
    with pytest.raises(DefinitionError, match=rf"Turning: step returns .*{said}"):
        envs.step(envs.action_space.sample())


def test_a_ready_vector_environments_observations_have_their_shape():
    """In each step, where one that broadcasts would be stored in silence."""

    class Batches(VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
        single_observation_space, single_action_space, num_envs, steps = Box(-1, 1, (2,)), Discrete(2), 3, 0

        def reset(self, *, seed=None, options=None):
            return np.zeros((3, 2), np.float32), {}

        def step(self, actions):
            self.steps += 1
            shape = (3, 1) if self.steps == 50 else (3, 2)
            return np.zeros(shape, np.float32), np.zeros(3), np.zeros(3, bool), np.zeros(3, bool), {}

    envs = GivenVectorEnv(Batches())
    said = r"Batches: step returns observations of shape \(3, 1\); its space and num_envs=3 say \(3, 2\)"
    stepped(envs, 49)
    with pytest.raises(DefinitionError, match=said):
        envs.step(envs.action_space.sample())


def test_an_exception_of_the_environment_is_raised_as_it_is():
    for env in (HostVectorEnv(lambda: TimeLimit(Raises(), 9), 1), velocirl.vector.checked_env.CheckedEnv(Raises())):
        with pytest.raises(KeyError, match="the user's own") as raised:
            stepped(env)
        assert raised.traceback[-1].path.name == "breaches.py"
        assert raised.value.__cause__ is raised.value.__context__ is None


def test_the_innermost_layer_with_the_problem_is_named():
    """A wrapper that passes on what is wrong is not blamed, one that makes it wrong is, one that mends it is fine."""

    class Doubling(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation + 3

    with pytest.raises(DefinitionError, match="OutOfSpace: step returns"):
        stepped(HostVectorEnv(lambda: gymnasium.wrappers.RecordEpisodeStatistics(OutOfSpace()), 1))
    with pytest.raises(DefinitionError, match=r"(?s)Doubling: observation returns 3\.0 in .*def observation"):
        stepped(HostVectorEnv(lambda: Doubling(Sound()), 1))
    wide = Box(-3, 3, (2,), np.float32)
    stepped(HostVectorEnv(lambda: TransformObservation(OutOfSpace(), lambda one: one, wide), 1))


def test_after_the_first_steps_the_environment_is_stepped_itself():
    envs = HostVectorEnv(Sound, 2)
    assert not set(map(id, envs._copies.acting)) & set(map(id, envs.envs))
    stepped(envs, STEPS)
    assert envs._copies.acting == envs.envs
    assert sys.getprofile() is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
def test_a_copy_of_a_vector_in_its_first_steps_steps_its_own_environments(copied):
    envs = HostVectorEnv(Sound, 1, seed=0)
    stepped(envs, 3)
    twin = copied(envs)
    stepped(twin, STEPS)
    assert twin._copies.acting == twin.envs
    assert envs._copies.acting[0] is not envs.envs[0]


def test_another_type_of_numbers_is_taken_with_a_warning():
    class Double(Sound):
        def step(self, action):
            return np.zeros(2), 1.0, False, False, {}

    with pytest.warns(UserWarning, match=r"Double: step returns observation of float64; its space has float32") as told:
        stepped(HostVectorEnv(Double, 2))
    assert len(told) == 1
    with pytest.raises(DefinitionError, match="Double has 1 problem"):
        velocirl.check_env(Double())


@pytest.mark.parametrize("given", ["gym:CartPole-v1", Sound, Sound(), lambda: TimeLimit(Sound(), 5)])
def test_check_env_takes_whatever_makes_an_environment(given, capsys):
    velocirl.check_env(given)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("is sound, as far as random actions show:")
    assert [line[:2] for line in rest] == ["- "] * 3


def test_check_env_finds_chance_that_no_seed_decides():
    class Random(Sound):
        chance = np.random.default_rng()

        def step(self, action):
            return OBSERVATION, self.chance.random(), False, False, {}

    with pytest.raises(DefinitionError, match="Random: reset gives other episodes with the same seed"):
        velocirl.check_env(Random)


def test_check_env_warns_of_episodes_that_never_end():
    with pytest.warns(UserWarning, match="had not ended after 10,000 random steps, and there is no time limit:"):
        velocirl.check_env(Endless, quiet=True)


def test_check_env_of_a_native_environment_behind_gymnasiums_interface_checks_that(capsys):
    velocirl.check_env(velocirl.make("Counter-v0", device="python"))
    assert "compiled as in plain Python" in capsys.readouterr().out


def test_check_env_lists_an_exception_with_its_line():
    with pytest.raises(DefinitionError, match=r"(?s)Raises: step fails with KeyError: .*breaches.py:\d+: raise"):
        velocirl.check_env(Raises)


def test_tables_learn_in_an_environment_that_keeps_the_contract():
    class Ring(Sound):
        observation_space = Endless.observation_space

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return np.int64(action), np.float32(1.0), np.bool_(False), True, {}

    assert QLearning(Ring, num_envs=1, seed=0).learn(100).steps >= 100
