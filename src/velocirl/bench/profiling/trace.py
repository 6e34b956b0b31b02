"""What a GPU does during a few iterations: a trace for a browser, and the kernels that take the longest."""

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
SECONDS = 0.5  # after which no further iteration is begun
LARGEST = 16 * 2**20  # bytes of a trace that stays as it is; viewers open compressed ones too
TOP = 10  # kernels that are told
MISSING = 'the trace of the GPU needs torch: pip install "velocirl[torch]"'


@dataclass(frozen=True)
class Kernel:
    """One kind of kernel, or of copy."""

    name: str
    calls: int
    seconds: float
    share: float  # of all that the GPU did


@dataclass(frozen=True)
class Trace:
    """What was traced."""

    file: str
    iterations: int
    gpu_seconds: float
    wall_seconds: float  # between the first and the last, as the tracer saw it: longer than without it
    kernels: tuple[Kernel, ...]

    @property
    def busy(self) -> float:
        """The share of the time in which the GPU had something to do."""
        return min(self.gpu_seconds / self.wall_seconds, 1.0) if self.wall_seconds > 0 else 0.0


def on_gpu(agent: Agent) -> bool:
    """Whether an agent trains on a GPU."""
    config = agent.config
    return "cuda" in (getattr(config, "device", None), getattr(config, "runtime", None))


def trace_missing() -> str | None:
    """What to do where nothing can be traced, or None."""
    return MISSING if importlib.util.find_spec("torch") is None else None


def trace_gpu(agent: Agent, total_steps: int, path: Path) -> Trace:
    """Trace a few iterations with the profiler of torch, which sees kernels of numba too.

    An iteration of many small minibatches gives a trace of hundreds of megabytes: a large one is compressed.
    """
    torch: Any = importlib.import_module("torch")  # imported here only: never where training is on a CPU
    profiler: Any = importlib.import_module("torch.profiler")
    wanted = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own options, which differ between versions
        with profiler.profile(activities=wanted) as profile:
            began = time.perf_counter()
            iterations = agent.iterations
            # All steps so far times as many are enough for that many iterations.
            agent.learn(max(total_steps, ITERATIONS * agent.steps), _stop(iterations + ITERATIONS, began + SECONDS))
            torch.cuda.synchronize()
            wall = time.perf_counter() - began
        profile.export_chrome_trace(str(path))
        kernels, spent = kernels_of(profile.key_averages())
    return Trace(compressed(path).name, agent.iterations - iterations, spent, wall, kernels)


def compressed(path: Path, largest: int = LARGEST) -> Path:
    """A file, or where it is large, a compressed one in its place."""
    if path.stat().st_size <= largest:
        return path
    smaller = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(smaller, "wb", compresslevel=5) as target:
        shutil.copyfileobj(source, target)
    path.unlink()
    return smaller


def kernels_of(events: Any) -> tuple[tuple[Kernel, ...], float]:
    """The kernels that took the longest, and the seconds of all of them, from what torch's profiler averaged."""
    on_device = [(one, float(one.self_device_time_total) * 1e-6) for one in events if "CUDA" in str(one.device_type)]
    spent = sum(seconds for _, seconds in on_device)
    top = sorted(on_device, key=lambda pair: -pair[1])[:TOP]
    share = 1.0 / spent if spent > 0 else 0.0
    return tuple(Kernel(str(one.key), int(one.count), seconds, seconds * share) for one, seconds in top), spent


def _stop(iterations: int, deadline: float) -> Callable[[Agent], bool]:
    return lambda agent: agent.iterations < iterations and time.perf_counter() < deadline
