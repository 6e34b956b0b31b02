"""More threads and workers beside one: training, stepping fleets, and environments of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Sampler
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores, vector_steps
from velocirl.bench.suite.tables.tabular_scaling import SLOW
from velocirl.bench.suite.training.ppo import ONE_EPOCH, velocirl_training
from velocirl.bench.units import STEPS
from velocirl.engine.targets.cpu import available_cores

COPIES = 65_536
WORKED_COPIES = 16


def counts() -> list[int]:
    """One, two, four and so on up to all cores; two even where there is one, to say that it is missing."""
    cores = available_cores()
    doubled = [1 << power for power in range(cores.bit_length()) if 1 << power <= cores]
    return sorted({1, 2, *doubled, cores})


def named(count: int, noun: str) -> str:
    """1 thread, 2 threads."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def comparison(noun: str, make: Callable[[int], Sampler]) -> Comparison:
    """Each number beside one."""
    names = {named(count, noun): count for count in counts()}
    one = named(1, noun)
    return Comparison(
        unit=STEPS,
        contestants={name: partial(make, count) for name, count in names.items()},
        claims=[ratio(name, one) for name in names if name != one],
    )


def fleet_steps(threads: int) -> Sampler:
    """A fleet that is stepped by so many threads."""
    require_cores(threads)
    return vector_steps(lambda: velocirl.make_vec("CartPole-v1", COPIES, threads=threads, copy=False))()


def worker_steps(workers: int) -> Sampler:
    """Environments in Python, stepped by so many processes."""
    require_cores(workers)
    return vector_steps(lambda: velocirl.make_vec(f"gym:{SLOW}", WORKED_COPIES, workers=workers))()


@benchmark(category="scaling")
def ppo_threads() -> Comparison:
    """Training PPO on CartPole-v1 by threads, 4096 copies x 32 steps, 1 epoch, minibatches of 16384.

    A 64x64 tanh network that policy and value share.
    """
    return comparison("thread", partial(velocirl_training, ONE_EPOCH))


@benchmark(category="scaling")
def vector_threads() -> Comparison:
    """CartPole-v1 through VectorEnv.step by threads, 65,536 copies.

    Without copies of what is returned, which one thread alone would make.
    """
    return comparison("thread", fleet_steps)


@benchmark(category="scaling", quick=False)
def host_processes() -> Comparison:
    """A Gymnasium environment whose step takes 20 us of Python, 16 copies, by worker processes."""
    return comparison("process", worker_steps)
