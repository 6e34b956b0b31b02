"""`check=True`: a fault that shows late is told with environment, function, line, index, copy and step."""

import numpy as np
import pytest
from toys.environments import drifting

import velocirl
from velocirl import DefinitionError, Discrete, int32, random, record

SEED = 28  # by which copy 0 is the first whose reset fails, at its first end
IN_STEP, IN_OBSERVE, IN_RESET, DIVISION = range(1, 5)
SQUARES = np.arange(9, dtype=np.int32)


@record
class Late:
    count: int32
    board: int32[9]


@record
class Params:
    fault: int32 = IN_STEP  # a parameter, so that one environment is compiled for all faults


def reset(state, params, rng):
    state.count = 0
    for square in range(9):
        state.board[square] = 0
    if params.fault == IN_RESET:
        state.count = SQUARES[8 + random.integer(rng, 0, 30) // 29]


def step(state, params, action, rng):
    state.count += 1
    if params.fault == IN_STEP and state.count > 40:
        state.board[state.count - 32 + action] = 1
    if params.fault == DIVISION:
        return (7 % (state.count - 41)) / 10, False  # one line, two divisions: whole numbers, then floats
    return 0.0, False


def observe(state, params, observation):
    place = state.count // 45 if params.fault == IN_OBSERVE else 0
    observation[place] = state.count


LATE = drifting(
    "Late-v0", state=Late, params=Params, observation=Discrete(400), max_steps=200, reset=reset, step=step,
    observe=observe,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "function", "line", "what", "moment"),
    [
        (IN_STEP, step, 3, "IndexError: index 9 is out of bounds for axis 0 with size 9", (41, 40)),
        (IN_OBSERVE, observe, 2, "IndexError: index 1 is out of bounds for axis 0 with size 1", (45, 45)),
        (IN_RESET, reset, 5, "IndexError: index 9 is out of bounds for axis 0 with size 9", (200, 200)),
        (DIVISION, step, 5, "ZeroDivisionError", (41, 40)),
    ],
    ids=["step", "observe", "reset", "division"],
)
def test_a_late_fault_is_named(fault, function, line, what, moment):
    name = function.__name__
    fleet = velocirl.make_vec(LATE, 4, check=True, threads=2, params={"fault": fault})
    fleet.reset(seed=SEED)
    with pytest.raises(DefinitionError) as caught:  # noqa: PT012 - which step fails is what is told
        for _ in range(300):
            fleet.step([0, 0, 0, 0])
    message = str(caught.value)
    assert message.startswith(f"Late-v0: {name} fails with {what}")
    assert "(copy 0, step {} of its episode, after {} steps of it)".format(*moment) in message
    assert f"{__file__}:{function.__code__.co_firstlineno + line}" in message


def test_the_copy_that_failed_is_told_and_not_another():
    fleet = velocirl.make_vec(LATE, 4, check=True, threads=2)
    fleet.reset()
    state = fleet.get_state()
    state["state"]["count"][3] = 45
    fleet.set_state(state)
    with pytest.raises(DefinitionError, match=r"index 15 is out of bounds for axis 0 with size 9 \(copy 3, step 1 of"):
        fleet.step([0, 0, 1, 1])
    with pytest.raises(DefinitionError, match=r"copy 3, step 1 of"):  # nothing has moved on, and nothing is forgotten
        fleet.step([0, 0, 1, 1])


def test_copies_that_are_watched_do_the_same():
    fleets = [velocirl.make_vec("CartPole-v1", 33, seed=5, check=check) for check in (False, True)]
    for fleet in fleets:
        fleet.reset()
        fleet.run_randomly(100)
    plain, watched = (fleet.get_state() for fleet in fleets)
    for name, array in plain.items():
        assert array.tobytes() == watched[name].tobytes(), name


@pytest.mark.slow
def test_an_agent_names_it_too():
    agent = velocirl.QLearning(LATE, seed=0, check=True)
    with pytest.raises(
        DefinitionError, match=r"Late-v0: step fails with IndexError: index \d+ .*step 41 of its episode"
    ):
        agent.learn(20_000)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_threads_do_not_wait_for_one_that_failed(algorithm):
    more = {"learning_starts": 10} if algorithm == "DQN" else {"num_envs": 8, "horizon": 16}
    agent = getattr(velocirl, algorithm)(LATE, seed=0, threads=2, check=True, **more)
    for _ in range(2):
        with pytest.raises(DefinitionError, match="Late-v0: step fails with IndexError"):
            agent.learn(10_000)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: velocirl.PPO("CartPole-v1", check=True, device="cuda"), "check is for the CPU"),
        (lambda: velocirl.PPO("gym:CartPole-v1", check=True), "steps in Python, which tests every index"),
        (lambda: velocirl.QLearning("TicTacToe-v1", check=True, runtime="processes"), 'runtime="serial" or "threads"'),
        (lambda: velocirl.make_vec("gym:CartPole-v1", 2, check=True), "runs in Python and has no check="),
    ],
)
def test_what_cannot_be_checked_says_so(make, advice):
    with pytest.raises(ValueError, match=advice):
        make()
