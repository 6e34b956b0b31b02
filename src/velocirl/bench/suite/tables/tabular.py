"""Q-learning of TicTacToe on one core: compared with plain Python and NumPy, and its memory."""

from __future__ import annotations

from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.machine.arithmetic import phase_facts
from velocirl.bench.machine.resident import told_once
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import MEGABYTES, SECONDS, STEPS

GAME = "TicTacToe-v1"
COPIES, STEPS_PER_CALL = 64, 4_000_000
PEER_STEPS, FLEET_PEER_STEPS = 5_000, 50_000
FEWEST_STEPS, LEAST_RATIO, MOST_SECONDS, MOST_MEGABYTES = 20e6, 200.0, 0.05, 10.0
SETTINGS: dict[str, Any] = {
    "num_envs": COPIES,
    "gamma": 1.0,
    "learning_rate": 0.1,
    "learning_rate_schedule": "constant",
    "exploration_rate": 0.1,
    "exploration_schedule": "constant",
    "seed": 0,
}
# The first agent loads compiled code; the second only adds a table, environments and their bookkeeping.
MEMORY = """
import velocirl
empty = resident()
first = velocirl.QLearning({game!r}, **{settings!r}).learn(16_384)
before = resident()
second = velocirl.QLearning({game!r}, **{settings!r}).learn({steps})
print(({figure}) / 1e6)
"""
PEER_MEMORY = """
from velocirl.bench.peers import {program}
before = resident()
learner = {program}.Learner()
learner.run({steps})
print((resident() - before) / 1e6)
"""


def velocirl_training(steps: int = STEPS_PER_CALL, **settings: Any) -> Timed:
    """Time training steps of an existing agent."""
    agent = velocirl.QLearning(GAME, **{**SETTINGS, **settings})
    return Timed(lambda: agent.learn(steps), amount=steps, facts=lambda: phase_facts(agent))


def velocirl_whole_training(**settings: Any) -> Timed:
    """Time a million steps of new agents, including their creation."""
    return Timed(lambda: velocirl.QLearning(GAME, **{**SETTINGS, **settings}).learn(1_000_000))


def list_training() -> Peer:
    """Time plain Python."""
    return Peer("list_q_learning", "training", PEER_STEPS, needs="random", amount=PEER_STEPS)


def numpy_training() -> Peer:
    """Time NumPy with one game after another."""
    return Peer("numpy_q_learning", "training", PEER_STEPS, needs="numpy", amount=PEER_STEPS)


def numpy_fleet_training() -> Peer:
    """Time NumPy with all games at once."""
    steps = FLEET_PEER_STEPS // COPIES * COPIES
    return Peer("numpy_q_learning", "fleet_training", COPIES, steps, needs="numpy", amount=steps)


def velocirl_memory(figure: str = "resident() - before", **settings: Any) -> Counted:
    """Measure the memory that a million steps add to a process with loaded code."""
    return told_once(MEMORY.format(game=GAME, settings={**SETTINGS, **settings}, steps=1_000_000, figure=figure))


def peer_memory(program: str) -> Counted:
    """Measure the memory that a peer's table and 20,000 steps add to its process."""
    return told_once(PEER_MEMORY.format(program=program, steps=20_000))


@benchmark(category="training")
def q_learning() -> Comparison:
    """Q-learning of TicTacToe, training steps on one core.

    The same everywhere: a random opponent, action masks, epsilon-greedy with epsilon 0.1 and ties drawn evenly, a table
    of all 19,683 boards. velocirl steps 64 games in one compiled loop and learns from each in turn. Plain Python and
    NumPy play one game after another, as one writes it first; NumPy with 64 games at once is what somebody writes who
    knows arrays well, and sums up the errors of games in the same state. The peers run in processes of their own.
    """
    dense, sparse, lists, numpy = "velocirl, dense table", "velocirl, sparse table", "Python lists", "NumPy"
    fleet = f"NumPy, {COPIES} games at once"
    return Comparison(
        unit=STEPS,
        contestants={
            dense: lambda: velocirl_training(storage="dense"),
            sparse: lambda: velocirl_training(storage="sparse"),
            lists: list_training,
            numpy: numpy_training,
            fleet: numpy_fleet_training,
        },
        claims=(
            value(dense, at_least=FEWEST_STEPS),
            ratio(dense, numpy, at_least=LEAST_RATIO),
            ratio(dense, lists),
            ratio(dense, fleet),
            ratio(sparse, numpy),
        ),
        peers=(lists, numpy, fleet),
    )


@benchmark(category="training")
def q_learning_million() -> Comparison:
    """A million training steps of Q-learning, from an agent's making to its end.

    TicTacToe on one core, as above, with compiled code that this process has loaded before.
    """
    dense, sparse = "velocirl, dense table", "velocirl, sparse table"
    return Comparison(
        unit=SECONDS,
        contestants={
            dense: lambda: velocirl_whole_training(storage="dense"),
            sparse: lambda: velocirl_whole_training(storage="sparse"),
        },
        claims=(value(dense, at_most=MOST_SECONDS),),
    )


@benchmark(category="memory", quick=False)
def q_learning_memory() -> Comparison:
    """Memory of Q-learning beyond the process.

    Resident memory that an agent, its table and a million steps of TicTacToe add to a process whose code is loaded;
    plain Python and NumPy after 20,000 steps. Each is measured once, in a process of its own. What numba and compiled
    code take, once for a process, stands beside it.
    """
    dense, sparse = "velocirl, dense table", "velocirl, sparse table"
    return Comparison(
        unit=MEGABYTES,
        contestants={
            "Python lists": lambda: peer_memory("list_q_learning"),
            "NumPy": lambda: peer_memory("numpy_q_learning"),
            dense: lambda: velocirl_memory(storage="dense"),
            sparse: lambda: velocirl_memory(storage="sparse"),
            "numba and compiled code, once": lambda: velocirl_memory("before - empty", storage="dense"),
        },
        claims=(value(dense, at_most=MOST_MEGABYTES), value(sparse, at_most=MOST_MEGABYTES)),
        peers=("Python lists", "NumPy"),
    )
