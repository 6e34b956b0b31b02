"""Measure what the counters in the training loops cost: the same training with them and with them compiled out.

    python tools/counter_overhead.py --rounds 30

Both learn from the same seed and so do the same work, in one process, in turns: each round times both, now one first,
now the other, and gives one ratio. The overhead is the median of these with its bootstrap interval. Processor time
instead of wall time (--processor) says more where other programs are running.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from velocirl.algorithms import load_algorithms
from velocirl.bench.statistics import estimate
from velocirl.training import counters
from velocirl.training.agent import Agent, Goal, algorithm_from

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


def agents_of(algorithm: str, environment: str, config: dict[str, Any], threads: int) -> tuple[Agent, Agent]:
    """The same agent twice: one whose loops count, and one whose loops were compiled without that."""
    made = []
    threads_of = {} if algorithm == "q-learning" else {"threads": threads}
    for counting in (True, False):
        counters.COUNTING, os.environ[SWITCH] = counting, str(int(counting))
        agent = algorithm_from(algorithm)(environment, seed=1, **threads_of, **config)
        agent.goal = Goal(0, ENDLESS)
        agent.prepare()
        agent.begin_clock()
        made.append(agent)
    counters.COUNTING = True
    return made[0], made[1]


def seconds_of(agent: Agent, iterations: int, clock: Callable[[], float]) -> float:
    """How long so many iterations take."""
    start = clock()
    for _ in range(iterations):
        agent.iterate()
    return clock() - start


def iterations_for(agents: tuple[Agent, Agent], seconds: float, clock: Callable[[], float]) -> int:
    """Iterations that take about so long; both agents take as many on the way."""
    iterations = 1
    while True:
        taken = min(seconds_of(agent, iterations, clock) for agent in agents)
        if taken > seconds / 4:
            return max(round(iterations * seconds / taken), 1)
        iterations *= 2


def overheads(agents: tuple[Agent, Agent], iterations: int, rounds: int, clock: Callable[[], float]) -> list[float]:
    """What counting cost in each round, as a share."""
    found = []
    for number in range(rounds):
        order = agents if number % 2 else agents[::-1]
        spent = {id(agent): seconds_of(agent, iterations, clock) for agent in order}
        found.append(spent[id(agents[0])] / spent[id(agents[1])] - 1.0)
    return found


def main() -> None:
    """Print the overhead of each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="of each case (default: 30)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one agent in a round (default: 0.2)")
    parser.add_argument("--threads", type=int, default=1, help="of the learners (default: 1)")
    parser.add_argument("--processor", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--only", default="", help="the cases whose names contain this")
    given = parser.parse_args()
    load_algorithms()
    clock = time.process_time if given.processor else time.perf_counter
    for name, (algorithm, environment, config) in CASES.items():
        if given.only.lower() not in name.lower():
            continue
        agents = agents_of(algorithm, environment, config, given.threads)
        iterations = iterations_for(agents, given.seconds, clock)
        samples = overheads(agents, iterations, given.rounds, clock)
        found = estimate(samples)
        verdict = "over the limit" if found.low > LIMIT else "within" if found.high < LIMIT else "open"
        print(
            f"{name:22} {found.median:+7.2%}  [{found.low:+.2%}, {found.high:+.2%}]  of {LIMIT:.0%}: {verdict}"
            f"  ({iterations} iterations, {given.rounds} rounds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
