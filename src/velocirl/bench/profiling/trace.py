"""GPU trace of a few iterations: a file for trace viewers, and the kernels that take the longest."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.training.agent import Agent

ITERATIONS = 3
SECONDS = 0.5  # no iteration starts later
LARGEST = 16 * 2**20  # bytes; larger traces are compressed, which viewers open too
TOP = 10  # kernels reported
MISSING = 'the trace of the GPU needs torch: pip install "velocirl[torch]"'


@dataclass(frozen=True)
class Kernel:
    """One kind of kernel or memory copy."""

    name: str
    calls: int
    seconds: float
    share: float  # of the GPU's busy time


@dataclass(frozen=True)
class Trace:
    """Summary of a GPU trace."""

    file: str
    iterations: int
    gpu_seconds: float
    wall_seconds: float  # of the traced iterations: longer than without the tracer
    kernels: tuple[Kernel, ...]

    @property
    def busy(self) -> float:
        """Fraction of the time in which the GPU was busy."""
        return min(self.gpu_seconds / self.wall_seconds, 1.0) if self.wall_seconds > 0 else 0.0


def on_gpu(agent: Agent) -> bool:
    """Return whether an agent trains on a GPU."""
    config = agent.config
    return "cuda" in (getattr(config, "device", None), getattr(config, "runtime", None))


def trace_missing() -> str | None:
    """Return instructions if torch is not installed, else None."""
    return MISSING if importlib.util.find_spec("torch") is None else None


def trace_gpu(agent: Agent, total_steps: int, path: Path) -> Trace:
    """Trace a few iterations with torch's profiler, which also records numba's kernels.

    Iterations of many small minibatches produce hundreds of megabytes: large traces are compressed.
    """
    torch: Any = importlib.import_module("torch")  # imported here only: not needed for training on a CPU
    profiler: Any = importlib.import_module("torch.profiler")
    wanted = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the profiler's own options, which differ between versions
        with profiler.profile(activities=wanted) as profile:
            began = time.perf_counter()
            iterations = agent.iterations
            # ITERATIONS times the steps so far suffice for ITERATIONS more iterations.
            agent.learn(max(total_steps, ITERATIONS * agent.steps), _stop(iterations + ITERATIONS, began + SECONDS))
            torch.cuda.synchronize()
            wall = time.perf_counter() - began
        profile.export_chrome_trace(str(path))
        kernels, spent = kernels_of(profile.key_averages())
    return Trace(compressed(path).name, agent.iterations - iterations, spent, wall, kernels)


def compressed(path: Path, largest: int = LARGEST) -> Path:
    """Compress a file in place if it is larger than `largest` bytes; returns the resulting path."""
    if path.stat().st_size <= largest:
        return path
    smaller = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(smaller, "wb", compresslevel=5) as target:
        shutil.copyfileobj(source, target)
    path.unlink()
    return smaller


def kernels_of(events: Any) -> tuple[tuple[Kernel, ...], float]:
    """Return the kernels that took the longest, and the seconds of all kernels, from averages of torch's profiler."""
    on_device = [(one, float(one.self_device_time_total) * 1e-6) for one in events if "CUDA" in str(one.device_type)]
    spent = sum(seconds for _, seconds in on_device)
    top = sorted(on_device, key=lambda pair: -pair[1])[:TOP]
    share = 1.0 / spent if spent > 0 else 0.0
    return tuple(Kernel(str(one.key), int(one.count), seconds, seconds * share) for one, seconds in top), spent


def _stop(iterations: int, deadline: float) -> Callable[[Agent], bool]:
    return lambda agent: agent.iterations < iterations and time.perf_counter() < deadline
