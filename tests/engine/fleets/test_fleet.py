"""A fleet's arrays: which actions it takes, what it refuses and with which words, and how much memory it needs."""

import gc
import resource
import time
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as some

import velocirl
from velocirl import float32, record
from velocirl.engine.fleets.lifecycle import bytes_of

NAN, INF = float("nan"), float("inf")
COPIES = 4


@record
class Taken:
    value: float32
    last: float32[3]


def take(state, params, action, rng):
    for k in range(3):
        state.last[k] = action[k]
    return 0.0, False


def take_one(state, params, action, rng):
    state.value = action[0]
    return 0.0, False


@pytest.fixture(scope="module")
def ready():
    """Fleets that stand ready to step, by id."""
    fleets = {}

    def ready(name):
        if name not in fleets:
            fleets[name] = velocirl.make_vec(name, COPIES, seed=1)
        fleets[name].reset(seed=1)
        return fleets[name]

    return ready


@pytest.mark.parametrize(
    ("name", "actions", "message"),
    [
        ("Pendulum-v1", [[0.0], [0.0], [NAN], [0.0]], r"the action of copy 2 is \[nan\], outside Box.*check the agent"),
        ("Pendulum-v1", [[0.0], [INF], [0.0], [0.0]], r"the action of copy 1 is \[inf\], outside Box"),
        ("Pendulum-v1", [[0.0], [0.0], [0.0], [-2.001]], r"the action of copy 3 is \[-2.001\], outside Box.*clip it"),
        ("Pendulum-v1", [0.0, 0.0, 0.0, 0.0], r"actions have shape \(4,\); give \(4, 1\), one action for each copy"),
        ("Pendulum-v1", [["a"], ["b"], ["c"], ["d"]], "actions are <U1; give numbers within Box"),
        ("CartPole-v1", [0, 2, 0, 0], r"the action of copy 1 is 2, outside Discrete\(2\)"),
        ("CartPole-v1", [0, 0, 0, -1], r"the action of copy 3 is -1, outside Discrete\(2\)"),
        ("CartPole-v1", [0.0, 1.0, 0.0, 0.0], r"actions are float64; give integers within Discrete\(2\)"),
        ("CartPole-v1", [NAN] * 4, "actions are float64; give integers"),
        ("CartPole-v1", [True, False, True, True], "actions are bool; give integers"),
        ("CartPole-v1", [0, 1, 0], r"actions have shape \(3,\); give \(4,\)"),
        ("CartPole-v1", [[0], [1], [0], [1]], r"actions have shape \(4, 1\); give \(4,\)"),
        ("CartPole-v1", 1, r"actions have shape \(\); give \(4,\)"),
        ("CartPole-v1", None, "actions have shape"),
        ("CartPole-v1", [0, 1, 0, 2**40], r"the action of copy 3 is 1099511627776, outside"),
    ],
)
def test_an_action_that_is_none_is_refused_by_name_and_nothing_moves(ready, name, actions, message):
    envs = ready(name)
    before = {key: array.copy() for key, array in envs.get_state().items()}
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        envs.step(actions)
    for key, array in envs.get_state().items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_any_size_are_actions(ready, dtype):
    envs = ready("CartPole-v1")
    for actions in (np.array([0, 1, 1, 0], dtype), np.array([0, 0, 1, 1, 1, 1, 0, 0], dtype)[::2]):
        envs.step(actions)
        np.testing.assert_array_equal(envs.copies.action, [0, 1, 1, 0])


@pytest.mark.parametrize("actions", [[0, 1, 1, 0], (0, 1, 1, 0)])
def test_sequences_are_actions(ready, actions):
    envs = ready("CartPole-v1")
    envs.step(actions)
    np.testing.assert_array_equal(envs.copies.action, actions)


def test_the_bounds_of_a_box_are_actions(ready):
    envs = ready("Pendulum-v1")
    envs.step(np.array([[-2.0], [2.0], [0], [1]], np.float64))
    np.testing.assert_array_equal(envs.copies.action, np.float32([[-2], [2], [0], [1]]))


def test_every_choice_of_a_multi_discrete_action_is_checked(define):
    environment = define(state=Taken, step=take, action=MultiDiscrete([2, 3, 4]))
    envs = velocirl.make_vec(environment, 2, seed=1)
    envs.reset()
    envs.step([[1, 2, 3], [0, 0, 0]])
    np.testing.assert_array_equal(envs.copies.state["last"], [[1, 2, 3], [0, 0, 0]])
    for copy, wrong in ((0, [[2, 0, 0], [0, 0, 0]]), (1, [[0, 0, 0], [0, 3, 0]]), (0, [[0, 0, -1], [0, 0, 0]])):
        with pytest.raises(ValueError, match=f"{environment.id}: the action of copy {copy} is"):
            envs.step(wrong)
        np.testing.assert_array_equal(envs.copies.state["last"], [[1, 2, 3], [0, 0, 0]])


def is_taken(envs, actions):
    """Whether a step takes these actions; it takes all of them or none."""
    steps = envs.copies.elapsed.copy()
    try:
        envs.step(actions)
    except ValueError as error:
        assert f"{envs.environment.id}: the action of copy" in str(error)  # noqa: PT017 - either may be right
        np.testing.assert_array_equal(envs.copies.elapsed, steps)
        return False
    np.testing.assert_array_equal(envs.copies.action, np.asarray(actions, envs.copies.action.dtype))
    return True


@given(some.lists(some.floats(width=32) | some.floats(-2, 2, width=32), min_size=COPIES, max_size=COPIES))
def test_just_the_actions_within_a_box_are_taken(ready, values):
    assert is_taken(ready("Pendulum-v1"), np.array(values)[:, None]) == all(-2 <= value <= 2 for value in values)


@given(some.lists(some.integers(-(2**63), 2**63 - 1) | some.integers(-1, 3), min_size=COPIES, max_size=COPIES))
def test_just_the_actions_of_a_discrete_space_are_taken(ready, values):
    assert is_taken(ready("MountainCar-v0"), values) == all(0 <= value < 3 for value in values)


@pytest.mark.parametrize("wrong", [INF, -INF, NAN, 1e300])
def test_infinite_actions_are_refused_even_where_the_space_has_no_bounds(define, wrong):
    environment = define(step=take_one, action=Box(-np.inf, np.inf, (1,)))
    envs = velocirl.make_vec(environment, 2, seed=1)
    envs.reset()
    assert is_taken(envs, [[1e30], [-1e30]])
    assert not is_taken(envs, [[0.0], [wrong]])


def test_random_actions_lie_in_their_box_also_where_it_has_no_bounds(define):
    low, high = np.float32([5.0, -INF, -INF, -0.5]), np.float32([INF, -5.0, INF, 0.25])
    envs = velocirl.make_vec(define(step=take_one, action=Box(low, high)), 1000, seed=1)
    envs.run_randomly(1)
    actions = envs.copies.action
    assert np.isfinite(actions).all()
    assert (low <= actions).all()
    assert (actions <= high).all()
    assert all(len(np.unique(column)) > 900 for column in actions.T)


def test_stepping_before_the_first_reset_is_refused():
    with pytest.raises(RuntimeError, match=r"CartPole-v1: call reset\(\) before step\(\)"):
        velocirl.make_vec("CartPole-v1", 2).step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"num_envs": -3}, "num_envs must be at least 1, got -3"),
        ({"num_envs": 2.5}, "num_envs must be a whole number, got 2.5"),
        ({"num_envs": "many"}, "num_envs must be a whole number, got 'many'"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"threads": -1}, "threads must be at least 1, got -1"),
        ({"threads": 1.5}, "threads must be a whole number, got 1.5"),
        ({"device": "gpu"}, "device must be one of cpu, cuda, python, got 'gpu'"),
        ({"device": None}, "device must be one of cpu, cuda, python, got None"),
    ],
)
def test_options_that_are_none_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=f"CartPole-v1: {message}"):
        velocirl.make_vec("CartPole-v1", **{"num_envs": 2, **options})


def test_numbers_of_numpy_are_numbers_of_copies_and_threads():
    envs = velocirl.make_vec("CartPole-v1", np.int64(3), threads=np.int32(1), seed=1)
    assert envs.reset()[0].shape == (3, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gravity": 5.0}, "unexpected keyword argument 'gravity'; parameters are set with params="),
        ({"workers": 2}, "CartPole-v1 is compiled and has no workers=; they are for gym: environments"),
    ],
)
def test_an_option_of_another_kind_of_environment_is_refused_with_advice(options, message):
    with pytest.raises(TypeError, match=message):
        velocirl.make_vec("CartPole-v1", 2, **options)


def test_a_copy_of_cartpole_takes_at_most_256_bytes():
    copies = velocirl.make_vec("CartPole-v1", 1000).copies
    assert bytes_of(copies) / 1000 <= 256


def test_no_built_in_environment_is_surprisingly_large():
    fleets = {name: velocirl.make_vec(name, 10, device="python") for name in velocirl.list_envs()}
    sizes = {name: bytes_of(envs.copies) / 10 for name, envs in fleets.items()}
    # A game has two screens, the one now and the last of an episode; in Seaquest, lists of all that swims.
    games = {name: envs for name, envs in fleets.items() if "MinAtar" in name or "Platformer" in name}
    screens = {name: 2 * envs.copies.observation[0].nbytes for name, envs in games.items()}
    most = {name: 1024 + screens.get(name, 0) + 512 * ("Seaquest" in name) for name in sizes}
    assert {name: size for name, size in sizes.items() if size > most[name]} == {}


def test_the_memory_of_a_fleet_grows_by_its_arrays_alone():
    envs = velocirl.make_vec("CartPole-v1", 10)
    envs.reset(seed=1)
    tracemalloc.start()
    try:
        large = velocirl.make_vec("CartPole-v1", 100_000, threads=1)
        large.reset(seed=1)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    arrays = bytes_of(large.copies)
    spaces = sum(space.low.nbytes * 2 for space in (large.observation_space,)) + large.action_space.nvec.nbytes * 2
    assert used < 1.2 * (arrays + spaces) + 2e6


def resident():
    """The memory of this process, in kilobytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is told by /proc")


@needs_proc
@pytest.mark.parametrize(("copy", "threads", "steps"), [(True, 1, 20_000), (False, 2, 4_000)])
def test_stepping_keeps_no_memory(copy, threads, steps):
    envs = velocirl.make_vec("CartPole-v1", 64, seed=1, threads=threads, copy=copy)
    envs.reset()
    actions = np.zeros(64, np.int32)

    def step_often(times):
        for _ in range(times):
            envs.step(actions)

    step_often(steps // 4)
    before = resident()
    step_often(steps)
    assert resident() - before < 1024
    tracemalloc.start()
    try:
        step_often(500)
        before = tracemalloc.get_traced_memory()[0]
        step_often(1500)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000  # bytes
    finally:
        tracemalloc.stop()


@needs_proc
def test_making_environments_again_and_again_keeps_no_memory(tmp_path, run_script):
    script = tmp_path / "make_often.py"
    script.write_text(
        """
import gc
import resource
from pathlib import Path
import velocirl

def make_often(times):
    for _ in range(times):
        env = velocirl.make("CartPole-v1")
        env.reset(seed=1)
        env.step(0)
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

before = make_often(10)
print(make_often(60) - before)
"""
    )
    assert int(run_script(script)) < 2e6


def test_a_fleet_that_nobody_holds_is_freed():
    envs = velocirl.make_vec("CartPole-v1", 1000, seed=1, threads=2)
    envs.reset()
    envs.step(np.zeros(1000, int))
    state = weakref.ref(envs.copies.state)
    del envs
    for _ in range(100):
        gc.collect()
        if state() is None:
            break
        time.sleep(0.01)  # a thread that has just taken a step may hold it for a moment
    assert state() is None
