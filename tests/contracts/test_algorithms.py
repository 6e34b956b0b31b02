"""What every algorithm keeps: exact resumes, files that give the same agent back, guards and signals.

In plain Python all of them run every time; compiled, those that no other test compiles are slow.
"""

import functools
import inspect
import os
import signal
import sys
from math import inf, nan
from pathlib import Path

import fragile
import numpy as np
import pytest
from choosing import slow_but
from constrained import for_algorithm
from recorded import file_of
from threads_as_ranks import train_on

import velocirl
from velocirl import Box, Checkpoint, Discrete, Environment, NumericalError
from velocirl.algorithms import algorithm_modules, load_algorithms
from velocirl.runs import memory_files
from velocirl.runs.checkpoints import Checkpoints
from velocirl.tabular.agent import TabularAgent
from velocirl.training import agent as agents
from velocirl.training import off_policy, offline
from velocirl.training.agent import Agent
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent
from velocirl.training.offline import OfflineAgent

load_algorithms()

ALGORITHMS = {name: kind for name, kind in agents.ALGORITHMS.items() if kind.__module__ in algorithm_modules().values()}
REMEMBERING = {"num_envs": 8, "learning_starts": 100, "train_every": 16, "batch_size": 16, "buffer_size": 1000,
               "hidden": (16, 16), "threads": 1}  # fmt: skip
COLLECTING = {"num_envs": 8, "horizon": 32, "hidden": (16, 16), "threads": 1}
RECORDED = {"batch_size": 16, "hidden": (16, 16), "threads": 1}
TABULAR = {"num_envs": 8}
SPECIAL = {
    "ppo": {"minibatch_size": 64, "epochs": 2},
    "dqn": {"n_step": 3, "priority": "proportional"},
    "td3": {"noise_correlation": 0.5},
    "qr-dqn": {"quantiles": 5},
    "cql": {"samples": 2},
    "cql-lagrangian": {"samples": 2},
    "online-cql": {"samples": 2},
    "double-q-learning": {"storage": "sparse"},
    "sarsa": {"n_step": 3},
    "expected-sarsa": {"exploration": "ucb"},
    "q-lambda": {"storage": "sparse"},
}
# In Python an iteration is shorter, and so is training.
SHORT = {"num_envs": 4, "horizon": 16, "minibatch_size": 32, "batch_size": 8, "buffer_size": 64, "learning_starts": 32}
TABLES = {name for name, kind in ALGORITHMS.items() if issubclass(kind, TabularAgent)}
DEEP = sorted(ALGORITHMS.keys() - TABLES)
OFFLINE = {name for name, kind in ALGORITHMS.items() if issubclass(kind, OfflineAgent)}
CONTINUOUS = Environment(
    "FragileContinuous-v0", state=fragile.State, params=fragile.Params, observation=Box(-inf, inf, (1,)),
    action=Box(-1.0, 1.0, (1,)), max_steps=1000, reset=fragile.reset, step=fragile.step, observe=fragile.observe,
)  # fmt: skip


def observe_count(state, params, observation):
    observation[0] = int(state.count)


COUNTED = Environment(
    "FragileCounted-v0", state=fragile.State, params=fragile.Params, observation=Discrete(5000), action=Discrete(2),
    max_steps=5000, reset=fragile.reset, step=fragile.step, observe=observe_count,
)  # fmt: skip


def cases():
    """Every algorithm on every device that needs no other library, those that compile much marked slow."""
    for name in sorted(ALGORITHMS):
        if name in DEEP:
            yield pytest.param((name, "python"), id=f"{name}-python")
        marks = () if name in ("ppo", "q-learning") else pytest.mark.slow
        yield pytest.param((name, "cpu"), id=f"{name}-cpu", marks=marks)


every_algorithm = pytest.mark.parametrize("case", list(cases()))
# What hears signals is the same for all of them; memories are those of off-policy algorithms.
every_signal = pytest.mark.parametrize(
    ("case", "number"),
    [
        pytest.param(*one.values, number, id=f"{one.id}-{number.name}", marks=one.marks)
        for one in cases()
        for number in (signal.SIGINT, signal.SIGTERM)
        if number == signal.SIGINT or one.values[0][0] in ("ppo", "q-learning")
    ],
)
every_file = pytest.mark.parametrize(
    ("case", "large"),
    [
        pytest.param(*one.values, large, id=f"{one.id}-{files}", marks=one.marks)
        for one in cases()
        for files, large in (("segments", 1), ("one file", 2**40))
        if large == 1 or issubclass(ALGORITHMS[one.values[0][0]], OffPolicyAgent)
    ],
)
every_one_that_steps = pytest.mark.parametrize("case", [one for one in cases() if one.values[0][0] not in OFFLINE])
in_python = pytest.mark.parametrize("name", [name for name in DEEP if name not in OFFLINE])


def of_kind(name, discrete, continuous, table):
    """What suits the actions of an algorithm."""
    if name in TABLES:
        return table
    offline = name in OFFLINE and not name.startswith("discrete-")
    return continuous if offline or issubclass(ALGORITHMS[name].Config, NoisyConfig) else discrete


def total_of(case):
    """Steps of several iterations, or updates."""
    name, device = case
    if name in OFFLINE and device == "python":
        return 16
    return 65_536 if name in TABLES else 128 if device == "python" else 4096


def some_of(case):
    """Steps of one or two iterations."""
    return min(total_of(case) // 3, 1024)


def settings_of(name):
    common = TABULAR if name in TABLES else COLLECTING
    if issubclass(ALGORITHMS[name], OffPolicyAgent):
        common = REMEMBERING
    elif name in OFFLINE:
        common = RECORDED
    return {**common, **SPECIAL.get(name, {})}


def short(name):
    """Those of its settings that make training short."""
    shorter = {"batch_size": 4} if name in OFFLINE else {}
    return {setting: value for setting, value in {**SHORT, **shorter}.items() if setting in settings_of(name)}


def made(case, env=None, *, kind=None, **changes):
    name, device = case
    kind = kind or ALGORITHMS[name]
    config = {**settings_of(name), **({} if name in TABLES else {"device": device})}
    if device == "python":
        config |= short(name)
    env = env or of_kind(name, "CartPole-v1", "Pendulum-v1", "TicTacToe-v1")
    env = for_algorithm(kind, env)
    if name in OFFLINE:
        config["data"] = file_of(env if isinstance(env, str) else env.id)
    return kind(env, **{**config, "seed": 5, **changes})


def stop_at(steps):
    return lambda agent: agent.steps < steps


def assert_same(one, other):
    one, other = one.state(), other.state()
    assert one.document == other.document
    assert one.arrays.keys() == other.arrays.keys()
    for key, array in one.arrays.items():
        assert_equal(array, other.arrays[key], key)


def assert_equal(one, other, key):
    """Bit for bit, but for what lies between the fields of records."""
    for field in one.dtype.names or (...,):
        assert one[field].tobytes() == other[field].tobytes(), f"{key} {field}"


def some_observations(agent):
    """50 of them; those of a box may lie anywhere."""
    space = agent.source.observation_space
    if isinstance(space, Box):
        return np.random.default_rng(0).normal(size=(50, *space.shape)).astype(np.float32)
    space.seed(0)
    return np.stack([space.sample() for _ in range(50)])


def remembers(agent):
    return isinstance(agent, OffPolicyAgent)


@pytest.fixture(scope="module")
def whole():
    """An agent of each algorithm that was trained without a break, once."""
    agents = {}

    def trained(case):
        if case not in agents:
            agents[case] = made(case).learn(total_of(case))
        return agents[case]

    return trained


def test_every_class_of_an_algorithm_is_found_by_its_name():
    assert {kind.__name__: kind.__module__ for kind in ALGORITHMS.values()} == algorithm_modules()
    assert set(SPECIAL) <= set(ALGORITHMS)


@every_algorithm
def test_the_seed_decides_all(case, whole):
    assert_same(made(case).learn(total_of(case)), whole(case))
    assert not np.array_equal(made(case, seed=6).learn(some_of(case)).parameters, whole(case).parameters)


@every_algorithm
def test_something_is_learnt_from(case, whole):
    assert whole(case).metrics["train/n_updates"] > 0
    assert not np.array_equal(whole(case).parameters, made(case).parameters)


@every_algorithm
def test_going_on_from_a_file_is_going_on(case, whole, tmp_path):
    half = total_of(case) // 2
    agent = made(case).learn(total_of(case), stop_at(half))
    assert half <= agent.steps < total_of(case)
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert_same(agent, again)
    assert_same(again.learn(), whole(case))


@every_file
def test_going_on_from_a_checkpoint_is_going_on(case, whole, tmp_path, monkeypatch, large):
    monkeypatch.setattr(memory_files, "LARGE", large)
    every = total_of(case) // 16
    made(case).learn(total_of(case), [Checkpoint(tmp_path, every=every), stop_at(total_of(case) // 2)])
    latest = Checkpoints(tmp_path).latest()
    assert latest.problems == ()
    assert (tmp_path / "memory").exists() == (remembers(whole(case)) and large == 1)
    again = Agent.from_state(latest.state)
    assert_same(again.learn(callbacks=Checkpoint(tmp_path, every=every)), whole(case))
    assert_same(Agent.load(max(tmp_path.glob("step_*"))), whole(case))


@every_algorithm
def test_a_saved_agent_acts_the_same(case, whole, tmp_path):
    agent = whole(case)
    observations = some_observations(agent)
    for memory in (True, False):
        again = Agent.load(agent.save(tmp_path / f"memory-{memory}", memory=memory))
        for deterministic in (True, False):
            rng = agent._acting.copy()
            expected = agent.predict(observations, deterministic=deterministic)[0]
            agent._acting[:] = rng
            np.testing.assert_array_equal(again.predict(observations, deterministic=deterministic)[0], expected)
        action = again.predict(observations[0], deterministic=True)[0]
        assert again.source.action_space.contains(action)


@every_algorithm
def test_what_is_inside_is_told_or_refused_and_asking_changes_nothing(case, whole, tmp_path):
    agent = whole(case)
    again, observations, before = Agent.load(agent.save(tmp_path / "agent")), some_observations(agent), agent.state()
    actions = agent.predict(observations, deterministic=True)[0]
    told = {}
    for ask in ("value", "action_probabilities", "q_values"):
        given = [actions] if ask == "q_values" else []
        try:
            told[ask] = getattr(agent, ask)(observations, *given)
        except ValueError:
            with pytest.raises(ValueError, match=agent.label):
                getattr(again, ask)(observations, *given)
    rollouts, clones = not isinstance(agent, (OffPolicyAgent, OfflineAgent, TabularAgent)), agent.name.endswith("bc")
    discrete = isinstance(agent.source.action_space, Discrete)
    clones = clones and "td3" not in agent.name
    assert told.keys() == (
        ({"value"} if not clones else set())
        | ({"action_probabilities"} if discrete else set())
        | ({"q_values"} if not clones and not rollouts else set())
    )
    for ask, found in told.items():
        given = [actions] if ask == "q_values" else []
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found, getattr(again, ask)(observations, *given))
        one = getattr(agent, ask)(observations[3], *([actions[3]] if given else []))
        np.testing.assert_allclose(one, found[3], rtol=1e-4, atol=1e-6)
    if "action_probabilities" in told:
        np.testing.assert_allclose(told["action_probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    if "q_values" in told and "iql" not in agent.name:
        np.testing.assert_allclose(told["q_values"], told["value"], rtol=1e-4, atol=1e-5)
    after = agent.state()
    assert all(np.array_equal(before.arrays[name], array) for name, array in after.arrays.items()
               if array.dtype.kind == "f" or name == "acting.rng")  # fmt: skip


@every_algorithm
def test_a_file_without_a_memory_is_small_and_learns_on_with_an_empty_one(case, whole, tmp_path):
    agent = whole(case)
    paths = [agent.save(tmp_path / f"memory-{memory}", memory=memory) for memory in (True, False)]
    again = Agent.load(paths[1])
    if remembers(agent):
        remembered = agent.state().arrays["memory.rows"].nbytes
        assert paths[1].stat().st_size < paths[0].stat().st_size - remembered // 2
        assert again.state().arrays["memory.counts"].tolist() == [0, 0, 0]
        assert_same(again, Agent.load(paths[0], memory=False))
    else:
        assert paths[0].read_bytes() == paths[1].read_bytes()
    more = some_of(case)
    again.learn(more)
    assert again.steps >= total_of(case) + more
    assert np.isfinite(again.parameters).all()


@every_algorithm
def test_a_state_is_not_changed_by_training_on(case):
    agent = made(case).learn(some_of(case))
    state = agent.state()
    before = {key: array.copy() for key, array in state.arrays.items()}
    agent.learn(some_of(case))
    for key, array in before.items():
        assert_equal(array, state.arrays[key], key)


@every_algorithm
def test_the_best_model_is_kept_without_its_memory(case, tmp_path):
    agent = made(case)
    evaluating = velocirl.Evaluate(every=some_of(case), episodes=2, directory=tmp_path)
    agent.learn(2 * some_of(case), evaluating)
    state = Checkpoints(tmp_path).best()
    assert len(state.arrays.get("memory.rows", ())) == 0
    assert (
        velocirl.evaluate(Agent.from_state(state), episodes=2, seed=0, deterministic=True).mean_return
        == evaluating.best
    )


@every_one_that_steps
def test_what_is_no_number_stops_it_and_leaves_the_last_checkpoint(case, tmp_path):
    name, device = case
    agent = made(case, of_kind(name, fragile.fragile, CONTINUOUS, COUNTED))
    at = 2500 if name in TABLES else 20 if device == "python" else 150  # after more than an iteration
    fault = (at - 1) * agent.config.num_envs
    agent.prepare()
    fragile.spoil(agent, 3, at, reward=nan)
    with pytest.raises(
        NumericalError, match=rf"a reward of the environment is not finite: copy 3, step {fault} of the"
    ):
        agent.learn(10 * total_of(case), Checkpoint(tmp_path, every=1))
    assert np.isfinite(agent.parameters).all()
    latest = Checkpoints(tmp_path).latest()
    assert 0 < latest.step <= fault
    for key, array in latest.state.arrays.items():
        for field in () if key.startswith("fleet.") else array.dtype.names or (...,):
            assert array[field].dtype.kind != "f" or np.isfinite(array[field]).all(), f"{key} {field}"


@every_signal
def test_a_signal_saves_and_ends_and_training_can_go_on(case, whole, tmp_path, number):
    agent = made(case)

    def interrupt(agent):
        if agent.steps >= total_of(case) // 2:
            os.kill(os.getpid(), number)

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        agent.learn(total_of(case), [interrupt, Checkpoint(tmp_path)])
    latest = Checkpoints(tmp_path).latest()
    assert total_of(case) // 2 <= latest.step == agent.steps < total_of(case)
    assert_same(Agent.from_state(latest.state).learn(), whole(case))


@pytest.mark.parametrize("name", slow_but({"ppo"}, DEEP))
def test_compiled_it_does_what_it_does_in_python(name):
    """From the same seed, by the same order of rows: the same but for rounding, also when a memory is full."""
    changes = {**short(name), "learning_rate_schedule": "constant"}
    if "buffer_size" in changes:
        changes |= {"buffer_size": 96}
    steps = 48 if name in OFFLINE else 160
    python, compiled = (made((name, device), **changes).learn(steps) for device in ("python", "cpu"))
    assert np.abs(python.parameters - made((name, "python")).parameters).max() > 1e-3
    np.testing.assert_allclose(compiled.parameters, python.parameters, rtol=1e-3, atol=1e-5)
    assert list(compiled.recent.lengths) == list(python.recent.lengths)


@pytest.mark.parametrize("name", slow_but({"ppo"}, DEEP))
def test_ranks_train_it_together_and_go_on_exactly(name, tmp_path, monkeypatch):
    """Three, which are threads here, with 3, 3 and 2 of 8 copies, or with parts of the data; then one process."""
    monkeypatch.setitem(offline.UPDATES, "cpu", 16)  # of an iteration
    monkeypatch.setitem(off_policy.STEPS, "cpu", 256)
    total = 48 if name in OFFLINE else 768
    whole, half, again = (tmp_path / f"{one}.safetensors" for one in ("whole", "half", "again"))

    def train(make, *given, path):
        def work(agent):
            agent.learn(*given, progress=False).save(path)
            return agent.parameters.copy()

        first, *others = train_on(3, make, work)
        assert all(np.array_equal(first, other) for other in others)

    train(lambda: made((name, "cpu")), total, path=whole)
    train(lambda: made((name, "cpu")), total, stop_at(total // 2), path=half)
    train(lambda: Agent.load(half), path=again)
    assert_same(Agent.load(again), Agent.load(whole))
    assert not np.array_equal(Agent.load(whole).parameters, made((name, "cpu")).parameters)
    with pytest.warns(UserWarning, match="was trained by 3 ranks and goes on with 1"):
        assert Agent.load(half).learn(progress=False).steps == total


def functions_of(agent):
    """All scalar functions of an agent's algorithm and of its environment."""
    task, environment = agent.task(), agent.source.native
    calls = [task.act, *task.program.functions, *([] if task.value is None else [task.value])]
    yield from (call.function for call in calls)
    yield from (function for function, _ in task.estimates)
    yield from (environment.reset, environment.step, environment.observe)


@in_python
def test_in_python_a_debugger_sees_every_function(name):
    """Those of the algorithm and those of its environment, as they were written."""
    agent = made((name, "python"))
    calls = {function.__code__: 0 for function in functions_of(agent)}

    def watch(frame, event, argument):
        if event == "call" and frame.f_code in calls:
            calls[frame.f_code] += 1

    sys.setprofile(watch)
    try:
        agent.learn(total_of((name, "python")))
    finally:
        sys.setprofile(None)
    assert len(calls) > 5
    assert all(calls.values()), {code.co_name: count for code, count in calls.items()}
    assert calls[agent.source.native.step.__code__] == agent.steps


@in_python
def test_in_python_a_breakpoint_is_reached_in_every_step_and_changes_nothing(name, whole, monkeypatch):
    kind, reached = ALGORITHMS[name], []
    act = inspect.getattr_static(kind, "act")

    @functools.wraps(act)
    def halting_act(*arguments):
        breakpoint()  # noqa: T100
        return act(*arguments)

    monkeypatch.setattr(sys, "breakpointhook", lambda: reached.append(sys._getframe(1).f_code.co_name))
    agent = made((name, "python"), kind=type("Halting", (kind,), {"act": halting_act}))
    reached.clear()  # of the rehearsal
    agent.learn(total_of((name, "python")))
    assert set(reached) == {"halting_act"}
    assert len(reached) == agent.steps - getattr(agent.config, "learning_starts", 0)
    np.testing.assert_array_equal(agent.parameters, whole((name, "python")).parameters)


NOTHING_IS_COMPILED = """
import dataclasses
import sys
import numba.core.dispatcher
from velocirl import Constraint
from velocirl.engine import registry
from velocirl.program.fields import reads_costs
from velocirl.algorithms import load_algorithms
from velocirl.training.persistence import ALGORITHMS
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.offline import OfflineAgent

sys.path.append(sys.argv[1])
from recorded import made_up

def refuse(*arguments):
    raise AssertionError("something is compiled")

numba.core.dispatcher.Dispatcher.compile = refuse
load_algorithms()
for name, kind in ALGORITHMS.items():
    if issubclass(kind, DeepAgent):
        offline = issubclass(kind, OfflineAgent)
        numbers = not name.startswith("discrete-") if offline else hasattr(kind.Config, "noise")
        environment = "Pendulum-v1" if numbers else "CartPole-v1"
        if reads_costs(kind.Scratch):
            limit = Constraint("far", value=lambda state, params: 0.0, high=1.0)
            environment = dataclasses.replace(registry.find(environment), id="Limited-v0", constraints=(limit,))
        short = {"num_envs": 4, "horizon": 8} if hasattr(kind.Config, "horizon") else {"batch_size": 8}
        short |= {"num_envs": 4, "learning_starts": 32} if hasattr(kind.Config, "learning_starts") else {}
        short |= {"data": made_up(environment, 2)} if offline else {}
        print(name, kind(environment, hidden=(8,), device="python", **short).learn(64).steps)
"""


def test_in_python_nothing_is_compiled(run_script, tmp_path):
    (tmp_path / "script.py").write_text(NOTHING_IS_COMPILED)
    told = run_script(tmp_path / "script.py", str(Path(__file__).parents[1]), home=tmp_path / "home")
    assert sorted(told.split()[::2]) == DEEP
    assert set(told.split()[1::2]) == {"64"}
    assert not list(tmp_path.glob("home/compiled/*"))
