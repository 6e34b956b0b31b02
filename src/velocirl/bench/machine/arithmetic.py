"""Minimum work, counted by hand: operations of networks and bytes of fleets; and the time shares of phases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from velocirl.engine.fleets.lifecycle import Copies
from velocirl.monitor.phases import shares
from velocirl.training.agent import Agent

# Arrays that every step reads and writes; random streams and ends of episodes are occasional extras.
READ = ("state", "params", "elapsed", "total", "action")
WRITTEN = ("state", "elapsed", "total", "observation", "reward", "terminated", "truncated")


def forward_operations(sizes: Sequence[int]) -> int:
    """Count the multiplications and additions of one row's matrix products through layers of these sizes only."""
    return 2 * sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def backward_operations(sizes: Sequence[int]) -> int:
    """Count the backward pass of one row: gradients of the weights and of all layer inputs but the first."""
    return 2 * forward_operations(sizes) - 2 * sizes[0] * sizes[1]


def fleet_bytes(copies: Copies) -> float:
    """Count the bytes that one environment's step at least reads from and writes to the fleet's arrays."""
    arrays = [getattr(copies, name) for name in (*READ, *WRITTEN)]
    return sum(array.size * array.dtype.itemsize for array in arrays) / copies.elapsed.shape[0]


def phase_facts(agent: Agent) -> dict[str, float]:
    """Return the time fractions of the phases in an agent's last call of `learn`, for a result's metadata."""
    return {f"phase:{path}": round(share, 4) for path, share in shares(agent.phases).items()}
