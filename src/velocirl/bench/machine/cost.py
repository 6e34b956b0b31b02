"""Minimum cost of an implementation's work, to express its speed as a fraction of the machine's limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cost:
    """Arithmetic and memory traffic of one unit of work, and the device it ran on.

    One unit is one step if samples are steps per second, and one call if they are seconds per call.
    """

    operations: float = 0.0  # floating-point additions and multiplications
    bytes: float = 0.0  # read from and written to memory, once each
    cores: int = 1  # cores that worked on it
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        if not (0.0 <= self.operations < 1e30 and 0.0 <= self.bytes < 1e30 and 1 <= self.cores <= 1_000_000):
            raise ValueError(f"a cost is of numbers that are not negative, and of at least one core, got {self}")
