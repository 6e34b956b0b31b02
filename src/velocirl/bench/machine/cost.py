"""What a contestant's work needs at least, so that its speed can be seen as a share of what the machine could do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cost:
    """The arithmetic and the memory traffic of one unit of work, and what it ran on.

    One unit is one step where samples are steps per second, and one call where they are seconds per call.
    """

    operations: float = 0.0  # floating-point additions and multiplications
    bytes: float = 0.0  # read from and written to memory, each once
    cores: int = 1  # that worked on it
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        if not (0.0 <= self.operations < 1e30 and 0.0 <= self.bytes < 1e30 and 1 <= self.cores <= 1_000_000):
            raise ValueError(f"a cost is of numbers that are not negative, and of at least one core, got {self}")
