"""Scaling with threads and workers: training, fleets, and Gymnasium environments."""

from __future__ import annotations

from functools import partial

import velocirl
from velocirl.bench.comparison import Comparison
from velocirl.bench.measuring import Sampler
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores, vector_steps
from velocirl.bench.scaling import scaling
from velocirl.bench.suite.tables.tabular_scaling import SLOW
from velocirl.bench.suite.training.ppo import ONE_EPOCH, velocirl_training

COPIES = 65_536
WORKED_COPIES = 16


def fleet_steps(threads: int) -> Sampler:
    """Time a fleet stepped by `threads` threads."""
    require_cores(threads)
    return vector_steps(lambda: velocirl.make_vec("CartPole-v1", COPIES, threads=threads, copy=False))()


def worker_steps(workers: int) -> Sampler:
    """Time Python environments stepped by `workers` processes."""
    require_cores(workers)
    return vector_steps(lambda: velocirl.make_vec(f"gym:{SLOW}", WORKED_COPIES, workers=workers))()


@benchmark(category="scaling")
def ppo_threads() -> Comparison:
    """Training PPO on CartPole-v1 by threads, 4096 copies x 32 steps, 1 epoch, minibatches of 16384.

    A 64x64 tanh network that policy and value share.
    """
    return scaling("thread", partial(velocirl_training, ONE_EPOCH))


@benchmark(category="scaling")
def vector_threads() -> Comparison:
    """CartPole-v1 through VectorEnv.step by threads, 65,536 copies.

    Without copies of what is returned, which one thread alone would make.
    """
    return scaling("thread", fleet_steps)


@benchmark(category="scaling", quick=False)
def host_processes() -> Comparison:
    """A Gymnasium environment whose step takes 20 us of Python, 16 copies, by worker processes."""
    return scaling("process", worker_steps)
