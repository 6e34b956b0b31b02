"""Generalised advantage estimation of a rollout, in scalar Python compiled, and on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.units import STEPS
from velocirl.buffers.returns import Discount, gae
from velocirl.buffers.rollout import GOES_ON, TRUNCATED, allocate_rollout, sample_type
from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.threads import run_together

COPIES, HORIZON = 4096, 32
GAMMA, GAE_LAMBDA = 0.99, 0.95
NEEDED = ("reward", "value", "final_value", "ended", "advantage", "target")  # of a record, read or written
ENDS = 0.02  # of all steps, as with a policy that is learning


def random_rollout(num_envs: int, horizon: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Records (num_envs, horizon) with random rewards, values and ends; and the values after the last step."""
    generator = np.random.default_rng(0)
    samples = allocate_rollout(num_envs, horizon, sample_type(4, 1, "int32", 0))
    for name in ("reward", "value", "final_value"):
        samples[name] = generator.random(samples.shape, np.float32)
    samples["ended"] = np.where(generator.random(samples.shape) < ENDS, TRUNCATED, GOES_ON)
    return samples, generator.random(num_envs, np.float32)


def columns(samples, last_values, discount):
    """Estimate the column of every copy."""
    for i in range(len(last_values)):
        gae(samples[i], last_values[i], discount)


def velocirl_gae(samples: NDArray[Any], last_values: NDArray[np.float32], threads: int) -> Timed:
    """Estimate records in place, copies shared out to threads."""
    require_cores(threads)
    discount = Discount(np.float32(1), np.float32(np.inf), np.float32(GAMMA), np.float32(GAE_LAMBDA))
    loop: Any = columns
    translator = learning_translator("gae")
    estimate = compile_loop(loop, (samples, last_values, discount), translator, before=lambda: None)
    parts = np.array_split(np.arange(len(samples)), threads)
    shares = []
    for part in parts:
        rows = slice(part[0], part[-1] + 1)
        shares.append([(estimate, (samples[rows], last_values[rows], discount))])
    cost = Cost(bytes=sum(samples.dtype[name].itemsize for name in NEEDED), cores=threads)
    return Timed(lambda: run_together(shares), amount=samples.size, cost=cost)


def numpy_gae(
    rewards: NDArray[np.float32],  # (horizon, num_envs), as are values, final_values and ended
    values: NDArray[np.float32],
    final_values: NDArray[np.float32],  # of what follows the end of an episode
    ended: NDArray[np.bool_],
    last_values: NDArray[np.float32],  # (num_envs,)
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Advantages and value targets, all copies at once."""
    advantages = np.empty_like(values)
    advantage, next_values = np.zeros_like(last_values), last_values
    for t in range(len(values) - 1, -1, -1):
        next_values = np.where(ended[t], final_values[t], next_values)
        delta = rewards[t] + GAMMA * next_values - values[t]
        advantage = delta + GAMMA * GAE_LAMBDA * np.where(ended[t], np.float32(0), advantage)
        advantages[t] = advantage
        next_values = values[t]
    return advantages, advantages + values


def timed_numpy_gae(samples: NDArray[Any], last_values: NDArray[np.float32]) -> Timed:
    """Estimate arrays (horizon, num_envs), as array programs like to have them."""
    names = ("reward", "value", "final_value", "ended")
    rewards, values, final_values, ended = (np.ascontiguousarray(samples[name].T) for name in names)
    ends = ended != GOES_ON
    return Timed(lambda: numpy_gae(rewards, values, final_values, ends, last_values), amount=samples.size)


@benchmark(category="learning")
def gae_4096() -> Comparison:
    """Generalised advantage estimation, 4096 copies x 32 steps.

    velocirl's is written for one copy and runs over the records of a rollout; NumPy's and torch's go backwards through
    time with an array of all copies. Each tells the end of an episode from a cut, and writes advantages and targets. Of
    memory, only the six numbers of a record that are needed count, although whole records are moved.
    """
    rollout = random_rollout(COPIES, HORIZON)
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl, 1 thread": lambda: velocirl_gae(*rollout, threads=1),
            "velocirl, 2 threads": lambda: velocirl_gae(*rollout, threads=2),
            "NumPy": lambda: timed_numpy_gae(*rollout),
            "torch": lambda: Peer("torch_gae", "estimating", COPIES, HORIZON, needs="torch", amount=COPIES * HORIZON),
        },
        claims=(ratio("velocirl, 1 thread", "NumPy"), ratio("velocirl, 1 thread", "torch")),
        peers=("NumPy", "torch"),
    )
