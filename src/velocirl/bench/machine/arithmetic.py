"""What work needs at least, counted by hand: operations of networks, bytes of fleets, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from velocirl.engine.fleets.lifecycle import Copies
from velocirl.monitor.phases import shares
from velocirl.training.agent import Agent

# What a step reads and writes whatever happens in it; random streams and ends of episodes come on top now and then.
READ = ("state", "params", "elapsed", "total", "action")
WRITTEN = ("state", "elapsed", "total", "observation", "reward", "terminated", "truncated")


def forward_operations(sizes: Sequence[int]) -> int:
    """Multiplications and additions of one row's matrix products through layers of these sizes, and nothing else."""
    return 2 * sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def backward_operations(sizes: Sequence[int]) -> int:
    """Those of one row back through the same layers: the gradients of the weights, and of all but the first input."""
    return 2 * forward_operations(sizes) - 2 * sizes[0] * sizes[1]


def fleet_bytes(copies: Copies) -> float:
    """Bytes that one step of one copy reads from the arrays of its fleet and writes to them, at least."""
    arrays = [getattr(copies, name) for name in (*READ, *WRITTEN)]
    return sum(array.size * array.dtype.itemsize for array in arrays) / copies.elapsed.shape[0]


def phase_facts(agent: Agent) -> dict[str, float]:
    """The shares of the time that an agent's last call of `learn` spent on each phase, to stand beside a result."""
    return {f"phase:{path}": round(share, 4) for path, share in shares(agent.phases).items()}
