"""Resident memory during training: samples over time, and a growth test."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import psutil

from velocirl.engine.disk.writing import write_shared
from velocirl.runs.curves.curve import BLUE, FAINT, INK

EVERY = 0.05  # seconds between samples
WARM_UP = 0.2  # of the samples after the first iteration: pages allocated earlier are touched for the first time
PARTS = 20  # of the remaining samples; growth is measured from part to part
LEAST_SAMPLES = 2 * PARTS
# Bytes at the lower end of the interval; less is within the interpreter's own fluctuation.
LEAST_GROWTH = 128 * 1024
RESAMPLES = 2000
MEBIBYTE = 2.0**20
GROWS, FLAT, SHORT = "grows", "flat", "too short to tell"


@dataclass
class Course:
    """Samples of resident memory: parallel lists, one entry per sample."""

    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Growth:
    """Verdict on memory growth after warm-up, and its size: bytes per million steps with their 95% interval."""

    verdict: str  # one of GROWS, FLAT, SHORT
    per_million_steps: float = 0.0
    low: float = 0.0
    high: float = 0.0
    growth_bytes: float = 0.0  # during the samples after warm-up

    def say(self) -> str:
        """Format the verdict as one line."""
        if self.verdict == SHORT:
            return f"{SHORT}: growth is judged from {LEAST_SAMPLES / (1 - WARM_UP) * EVERY:.1f} s of training on"
        low, high, middle = (one / MEBIBYTE for one in (self.low, self.high, self.per_million_steps))
        interval = f"{middle:.2f} MiB per million steps (95% interval {low:.2f} to {high:.2f})"
        return f"{self.verdict}: {interval}, {self.growth_bytes / MEBIBYTE:.1f} MiB after warm-up"


class MemorySampler:
    """Context manager: a thread samples the resident memory of this process and its child processes."""

    def __init__(self, steps: Callable[[], int], every: float = EVERY) -> None:
        self.course = Course()
        self._steps, self._every = steps, every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="memory")
        own = psutil.Process()
        # Listed once: workers start before training, and listing takes longer than all other work of a sample.
        self._processes = [own, *own.children(recursive=True)]

    @property
    def processes(self) -> int:
        """Number of processes measured."""
        return len(self._processes)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        course = self.course
        while True:
            resident = 0
            for process in self._processes:
                with contextlib.suppress(psutil.Error):  # worker has ended
                    resident += process.memory_info().rss
            course.seconds.append(time.perf_counter() - self._began)
            course.steps.append(self._steps())
            course.bytes.append(resident)
            if self._done.wait(self._every):
                return


def judge_growth(steps: Sequence[float], resident: Sequence[float]) -> Growth:
    """Test whether memory grows, from consecutive samples.

    The samples after warm-up are split into parts. The differences between medians of consecutive parts are resampled
    with replacement (bootstrap). One jump, from an array allocated late, is no leak. Continued growth is, whatever its
    increments: its interval is above 0.
    """
    first = warm_from(steps)
    if len(resident) - first < LEAST_SAMPLES:
        return Growth(SHORT)
    middles = [
        (np.median(np.asarray(steps[part[0] : part[-1] + 1])), np.median(np.asarray(resident[part[0] : part[-1] + 1])))
        for part in np.array_split(np.arange(first, len(resident)), PARTS)
    ]
    taken, grown = np.diff(np.array(middles, np.float64), axis=0).T
    if taken.sum() <= 0:
        return Growth(SHORT)
    chosen = np.random.default_rng(0).integers(0, len(grown), (RESAMPLES, len(grown)))
    low, high = map(float, np.percentile(1e6 * grown[chosen].sum(axis=1) / taken.sum(), (2.5, 97.5)))
    verdict = GROWS if low * taken.sum() / 1e6 >= LEAST_GROWTH else FLAT
    return Growth(verdict, float(1e6 * grown.sum() / taken.sum()), low, high, float(grown.sum()))


def warm_from(steps: Sequence[float]) -> int:
    """Return the index of the first sample after warm-up.

    Warm-up is the first iteration, which may compile code, and a fraction of the remaining samples.
    """
    moved = next((i for i, count in enumerate(steps) if count > steps[0]), len(steps))
    return moved + int((len(steps) - moved) * WARM_UP)


def draw_memory(course: Course, path: Path, title: str) -> bool:
    """Plot memory over time as a PNG; returns False if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    megabytes = np.asarray(course.bytes, np.float64) / MEBIBYTE
    axes.plot(course.seconds, megabytes, color=BLUE, linewidth=1.8, marker="o" if len(megabytes) == 1 else None)
    if len(megabytes) > 1:
        warm = course.seconds[min(warm_from(course.steps), len(megabytes) - 1)]
        axes.axvspan(0.0, warm, color=FAINT, alpha=0.12, linewidth=0)
        axes.text(warm, 1.0, " after warm-up", transform=axes.get_xaxis_transform(), va="top", color=FAINT, fontsize=9)
    spread = float(np.ptp(megabytes)) if megabytes.size else 0.0
    if spread < 0.02 * float(megabytes.max(initial=1.0)):  # do not magnify fluctuations of single pages
        middle = float(megabytes.mean()) if megabytes.size else 0.0
        axes.set_ylim(0.98 * middle, 1.02 * middle + 1e-9)
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=12, parse_math=False)
    axes.set_xlabel("seconds of training", color=INK)
    axes.set_ylabel("resident memory (MiB)", color=INK)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK)
    axes.ticklabel_format(useOffset=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor="white")
    write_shared(path, [picture.getbuffer()])
    return True
