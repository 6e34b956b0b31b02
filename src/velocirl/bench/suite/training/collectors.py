"""Tests of claims about collectors: free ones never wait, and the gains of large batches and single threads."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio, value
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.peers.matrix_cartpole import MatrixCartPole
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.suite.training.dqn import PLAIN
from velocirl.bench.units import PERCENT, STEPS
from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import ReplayBuffer
from velocirl.collect.collectors.consolidating import gather
from velocirl.collect.collectors.ring import GIVEN, Ring, Shape
from velocirl.vector.host.copies import Carver
from velocirl.vector.host.worker_handle import ONE_THREAD

COLLECTORS, COPIES = 2, 8
SETTINGS: dict[str, Any] = {
    **asdict(PLAIN), "num_envs": COPIES, "batch_size": 64, "train_every": 4, "collectors": COLLECTORS,
}  # fmt: skip
WATCHED_STEPS = 65_536  # for watching collectors: some seconds
MOST_WAITING = 1.0  # percent
BATCHES, WAITING_ROUNDS = (1, 64, 1024), 2048
KIND = transition_type(4, Act(1, "int32", 0))  # of CartPole
MATRIX_STEPS = 256


class Free:
    """Agent with free collectors on Gymnasium's CartPole, with measurements of their waiting."""

    def __init__(self) -> None:
        require_cores(COLLECTORS)
        if not Path(f"/proc/{os.getpid()}/schedstat").exists():
            raise UnavailableError("this system does not say how long a process has waited for a core")
        self.agent = velocirl.DQN("gym:CartPole-v1", **{**SETTINGS, "collect_mode": "free"})
        self.agent.learn(2048)
        self.learner: Any = self.agent.learner

    def share(self, idle: Callable[[Free], float]) -> float:
        """Return the collectors' mean idle time as a percentage; `idle` returns a running total in nanoseconds."""
        marks: list[tuple[int, float]] = []
        self.agent.learn(WATCHED_STEPS, callbacks=lambda _: marks.append((perf_counter_ns(), idle(self))))
        (began, before), (ended, after) = marks[0], marks[-1]
        return max(100.0 * (after - before) / (ended - began), 0.0)


def waiting_counted(free: Free) -> float:
    """Return the waiting time that the collectors count themselves."""
    return free.learner.gauges()["collector/waiting_seconds"] * 1e9


def neither_running_nor_ready(free: Free) -> float:
    """Return the time that collectors were neither running nor queued for a core, according to the system."""
    busy = [_busy(process) for process in free.learner.collected.processes]
    return perf_counter_ns() - sum(busy) / len(busy)


def _busy(process: int) -> int:
    running, queued, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return int(running) + int(queued)


def waiting(idle: Callable[[Free], float]) -> Counted:
    """Measure the percentage of time that collectors wait, according to `idle`."""
    free = Free()
    return Counted(lambda: free.share(idle), closing=free.learner.close)


def consolidating(rounds: int) -> Timed:
    """Time transitions from one environment's full ring into a replay buffer, in batches of `rounds`."""
    shape, counter = Shape(KIND, 1, WAITING_ROUNDS + 1, 1, 0), Carver()
    Ring(counter, shape)
    ring = Ring(Carver(mmap.mmap(-1, counter.size)), shape)
    buffer = ReplayBuffer(50 * WAITING_ROUNDS, KIND, 0)

    def empty() -> None:
        ring.counts[GIVEN] += WAITING_ROUNDS
        while len(ring):
            buffer.add(gather(ring, rounds, 0).rows)

    return Timed(empty, amount=WAITING_ROUNDS)


@contextmanager
def as_many_threads_as_cores() -> Iterator[None]:
    """Start processes inside the context with the libraries' default number of threads."""
    if limited := [name for name in ONE_THREAD if name in os.environ]:
        raise UnavailableError(f"{limited[0]} is set, which says how many threads there are")
    kept = dict(ONE_THREAD)
    ONE_THREAD.clear()
    try:
        yield
    finally:
        ONE_THREAD.update(kept)


def multiplying(*, one_thread: bool) -> Timed:
    """Time training steps on environments that multiply matrices."""
    require_cores(COLLECTORS)

    def make() -> velocirl.DQN:
        agent = velocirl.DQN(MatrixCartPole, **SETTINGS)
        agent.learn(200)  # starts the collectors
        return agent

    if one_thread:
        agent = make()
    else:
        with as_many_threads_as_cores():
            agent = make()
    learner: Any = agent.learner
    return Timed(lambda: agent.learn(MATRIX_STEPS), amount=MATRIX_STEPS, closing=learner.close)


@benchmark(category="training", standard=False)
def collectors_wait() -> Comparison:
    """The share of their time that free collectors wait for anything but a core, two of them, while DQN learns.

    Gymnasium's CartPole, 8 copies, an update of 64 every four steps as far as there is time. By the system: the time
    in which a collector neither ran nor was ready to (/proc/PID/schedstat), whatever it waited for; where others use
    the cores it is noted late, by tens of milliseconds. By their own counts: what the function by which they wait has
    counted, which free collectors call only between trainings.
    """
    return Comparison(
        unit=PERCENT,
        contestants={
            "by the system": partial(waiting, neither_running_nor_ready),
            "by their own counts": partial(waiting, waiting_counted),
        },
        claims=tuple(value(name, at_most=MOST_WAITING) for name in ("by the system", "by their own counts")),
    )


@benchmark(category="learning", standard=False)
def collected_batches() -> Comparison:
    """What the thread that consolidates takes from a collector's ring into the memory, by the size of its batches.

    A ring of 2,048 rounds of one copy, records of CartPole; batches of at least 1,000 are what velocirl makes.
    """
    names = {f"batches of {size:,}": partial(consolidating, size) for size in BATCHES}
    largest = f"batches of {BATCHES[-1]:,}"
    return Comparison(
        unit=STEPS,
        contestants=names,
        claims=tuple(ratio(largest, name) for name in names if name != largest),
    )


@benchmark(category="training", standard=False)
def collector_threads() -> Comparison:
    """Training DQN on environments that multiply matrices of 256x256 in each step, with two collectors.

    One thread of BLAS in each collector, as velocirl starts them, and as many as there are cores, as libraries have it
    by themselves. CartPole after such a product, 8 copies, an update of 64 every four steps, paced.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            "one thread each": partial(multiplying, one_thread=True),
            "as many as cores": partial(multiplying, one_thread=False),
        },
        claims=(ratio("one thread each", "as many as cores"),),
    )
