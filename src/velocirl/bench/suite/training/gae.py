"""Generalized advantage estimation of a rollout: compiled scalar Python, and array programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.units import STEPS
from velocirl.buffers.records import GOES_ON, TRUNCATED, Act, Field, rollout_type
from velocirl.buffers.returns import gae
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.engine.targets.threads import run_together

COPIES, HORIZON = 4096, 32
GAMMA, GAE_LAMBDA = 0.99, 0.95
NEEDED = ("reward", "value", "final_value", "ended", "advantage", "target")  # of a record, read or written
ENDS = 0.02  # of all steps, as with a policy that is learning


def random_rollout(num_envs: int, horizon: int) -> NDArray[Any]:
    """Return records (num_envs, horizon + 1) of random rewards, values and ends.

    Only the value of the last step counts.
    """
    generator = np.random.default_rng(0)
    fields = [Field(name, np.float32) for name in ("value", "advantage", "target", "log_probability")]
    records = np.zeros((num_envs, horizon + 1), rollout_type(4, Act(1, "int32", 0), fields, ["value"]))
    for name in ("reward", "value", "final_value"):
        records[name] = generator.random(records.shape, np.float32)
    records["ended"] = np.where(generator.random(records.shape) < ENDS, TRUNCATED, GOES_ON)
    return records


def velocirl_gae(records: NDArray[Any], threads: int) -> Timed:
    """Time estimation in place, with environments sharded over threads."""
    require_cores(threads)
    settings = np.array([(GAMMA, GAE_LAMBDA)], [("gamma", np.float32), ("gae_lambda", np.float32)])
    loop: Any = row_loop(gae)
    columns = *(records[name] for name in NEEDED), Shared(settings)
    estimate = bind_unit(loop, columns, learning_translator("gae"), disjoint=False)
    parts = np.array_split(np.arange(len(records)), threads)
    shares = [[(estimate, (part[0], part[-1] + 1))] for part in parts]
    cost = Cost(bytes=sum(records.dtype[name].itemsize for name in NEEDED), cores=threads)
    return Timed(lambda: run_together(shares), amount=len(records) * (records.shape[1] - 1), cost=cost)


def numpy_gae(
    rewards: NDArray[np.float32],  # (horizon, num_envs), as are values, final_values and ended
    values: NDArray[np.float32],
    final_values: NDArray[np.float32],  # of the final observation of an ended episode
    ended: NDArray[np.bool_],
    last_values: NDArray[np.float32],  # (num_envs,)
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return advantages and value targets, computed for all environments at once."""
    advantages = np.empty_like(values)
    advantage, next_values = np.zeros_like(last_values), last_values
    for t in range(len(values) - 1, -1, -1):
        next_values = np.where(ended[t], final_values[t], next_values)
        delta = rewards[t] + GAMMA * next_values - values[t]
        advantage = delta + GAMMA * GAE_LAMBDA * np.where(ended[t], np.float32(0), advantage)
        advantages[t] = advantage
        next_values = values[t]
    return advantages, advantages + values


def timed_numpy_gae(records: NDArray[Any]) -> Timed:
    """Time estimation on arrays (horizon, num_envs), the usual layout of array programs."""
    columns = as_columns(records)
    return Timed(lambda: numpy_gae(*columns), amount=columns[0].size)


def as_columns(records: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the arguments of `numpy_gae` for these records."""
    names = ("reward", "value", "final_value", "ended")
    columns = [np.ascontiguousarray(records[name][:, :-1].T) for name in names]
    return [*columns[:3], columns[3] != GOES_ON, np.ascontiguousarray(records["value"][:, -1])]


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
            "velocirl, 1 thread": lambda: velocirl_gae(rollout, threads=1),
            "velocirl, 2 threads": lambda: velocirl_gae(rollout, threads=2),
            "NumPy": lambda: timed_numpy_gae(rollout),
            "torch": lambda: Peer("torch_gae", "estimating", COPIES, HORIZON, needs="torch", amount=COPIES * HORIZON),
        },
        claims=(ratio("velocirl, 1 thread", "NumPy"), ratio("velocirl, 1 thread", "torch")),
        peers=("NumPy", "torch"),
    )
