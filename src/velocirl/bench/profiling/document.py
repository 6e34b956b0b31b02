"""The complete profile as one document: `profile.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from velocirl.bench.profiling.advice import Advice
from velocirl.bench.profiling.flame import Flame
from velocirl.bench.profiling.lines import LineReport
from velocirl.bench.profiling.memory import Course, Growth
from velocirl.bench.profiling.trace import Trace
from velocirl.bench.profiling.tree import Node
from velocirl.bench.profiling.watching import Training
from velocirl.engine.disk.writing import strict_json, write_shared

NAME = "profile.json"
FORMAT = 1


@dataclass(frozen=True)
class StartUp:
    """Seconds before training reached its steady state."""

    build: float  # the agent and its environment
    prepare: float  # fleet, network, compiling or loading of code
    compiled: bool  # whether code was compiled; later runs only load it
    first_iteration: float


@dataclass(frozen=True)
class Memory:
    """Resident memory during training."""

    course: Course
    processes: int
    growth: Growth
    filling: str  # description of storage that was still filling up: such growth ends
    picture: str = ""  # file name of the plot

    @property
    def lowest(self) -> int:
        """Minimum in bytes."""
        return min(self.course.bytes, default=0)

    @property
    def peak(self) -> int:
        """Maximum in bytes."""
        return max(self.course.bytes, default=0)


@dataclass
class Profile:
    """Results of profiling; None if not requested, not possible (see `notes`), or not reached."""

    command: str
    environment: str
    algorithm: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    start_up: StartUp
    training: Training
    tree: list[Node]
    memory: Memory | None = None
    flame: Flame | None = None
    trace: Trace | None = None
    lines: LineReport | None = None
    advice: list[Advice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: str | None = None  # the part that Ctrl-C interrupted

    def as_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {"format": FORMAT, **msgspec.to_builtins(self)}
        plain["training"]["steps_per_second"] = self.training.rate
        if self.memory is not None:
            plain["memory"].update(lowest_bytes=self.memory.lowest, peak_bytes=self.memory.peak)
        if self.trace is not None:
            plain["trace"]["busy"] = self.trace.busy
        return plain

    def as_json(self) -> str:
        """Return strict JSON."""
        return f"{strict_json(self.as_plain(), indent=1)}\n"

    def write(self, directory: Path) -> Path:
        """Write `profile.json` atomically; returns its path."""
        path = directory / NAME
        write_shared(path, [self.as_json().encode()])
        return path
