"""Measure what the counters in the training loops cost: the same training with them and with them compiled out.

    python tools/counter_overhead.py

All learn from the same seed and so do the same work, in one process, in turns. As where `velocirl bench` looks for
regressions, the fastest samples count. Two agents without counters are measured beside the one that has them: what
they differ by is what this machine can tell apart. Agents are made anew several times, since where their arrays lie in
memory matters as much. Processor time instead of wall time (--processor) says more where other programs are running.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms import load_algorithms
from velocirl.bench.regression import ratio_of
from velocirl.bench.statistics import Estimate
from velocirl.engine.compiler import counters
from velocirl.training.agent import Agent
from velocirl.training.persistence import Goal, algorithm_from

SWITCH = "VELOCIRL_COUNTERS"  # for processes that compile ahead
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO CartPole 4096x32": ("ppo", "CartPole-v1", {"num_envs": 4096, "horizon": 32, "hidden": (64, 64)}),
    "PPO CartPole preset": ("ppo", "CartPole-v1", {}),
    "DQN CartPole preset": ("dqn", "CartPole-v1", {}),
    "SAC Pendulum preset": ("sac", "Pendulum-v1", {}),
    "Q-learning TicTacToe": ("q-learning", "TicTacToe-v1", {}),
}
ENDLESS = 10**9  # steps, so that schedules stand still
LIMIT = 0.01  # the most that counters may cost


def agents_of(algorithm: str, environment: str, config: dict[str, Any], threads: int) -> list[Agent]:
    """The same agent three times: one whose loops count, and two whose loops were compiled without that."""
    made = []
    threads_of = {} if algorithm == "q-learning" else {"threads": threads}
    for counting in (True, False, False):
        counters.COUNTING, os.environ[SWITCH] = counting, str(int(counting))
        agent = algorithm_from(algorithm)(environment, seed=1, **threads_of, **config)
        agent.goal = Goal(0, ENDLESS)
        agent.prepare()
        agent.begin_clock()
        made.append(agent)
    counters.COUNTING = True
    return made


def seconds_of(agent: Agent, iterations: int, clock: Callable[[], float]) -> float:
    """How long so many iterations take."""
    start = clock()
    for _ in range(iterations):
        agent.iterate()
    return clock() - start


def iterations_for(agents: list[Agent], seconds: float, clock: Callable[[], float]) -> int:
    """Iterations that take about so long; all agents take as many on the way."""
    iterations = 1
    while True:
        taken = min(seconds_of(agent, iterations, clock) for agent in agents)
        if taken > seconds / 4:
            return max(round(iterations * seconds / taken), 1)
        iterations *= 2


def rates_of(agents: list[Agent], iterations: int, rounds: int, clock: Callable[[], float]) -> NDArray[np.float64]:
    """Iterations per second of each agent in each round, in which all have their turn."""
    rates = np.zeros((len(agents), rounds))
    shuffle = np.random.default_rng(0)
    for number in range(rounds):
        for place in shuffle.permutation(len(agents)):
            rates[place, number] = iterations / seconds_of(agents[place], iterations, clock)
    return rates


def cost(ratio: Estimate) -> str:
    """How much longer it takes, for a line."""
    return f"{1 / ratio.median - 1:+7.2%}  [{1 / ratio.high - 1:+.2%}, {1 / ratio.low - 1:+.2%}]"


def main() -> None:
    """Print the overhead of each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=4, help="times that they are made anew (default: 4)")
    parser.add_argument("--rounds", type=int, default=60, help="each time (default: 60)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of one agent in a round (default: 0.05)")
    parser.add_argument("--threads", type=int, default=1, help="of the learners (default: 1)")
    parser.add_argument("--processor", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--only", default="", help="the cases whose names contain this")
    given = parser.parse_args()
    load_algorithms()
    clock = time.process_time if given.processor else time.perf_counter
    for name, (algorithm, environment, config) in CASES.items():
        if given.only.lower() not in name.lower():
            continue
        parts = []
        for _ in range(given.agents):
            agents = agents_of(algorithm, environment, config, given.threads)
            iterations = iterations_for(agents, given.seconds, clock)
            parts.append(rates_of(agents, iterations, given.rounds, clock))
        counting, without, again = np.concatenate(parts, axis=1)
        found = ratio_of(np.concatenate((without, again)), counting)
        highest, lowest = 1 / found.low - 1, 1 / found.high - 1
        verdict = "over the limit" if lowest > LIMIT else "within" if highest < LIMIT else "open"
        print(
            f"{name:22} {cost(found)}  of {LIMIT:.0%}: {verdict}; without, twice: {cost(ratio_of(without, again))}",
            flush=True,
        )


if __name__ == "__main__":
    main()
