"""Resident memory during training: its course, and whether it grows."""

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

EVERY = 0.05  # seconds from one sample to the next
WARM_UP = 0.2  # of the samples after the first iteration: pages are touched that were asked for long before
PARTS = 20  # of the rest; growth is judged from one to the next
LEAST_SAMPLES = 2 * PARTS
# Bytes at the low end of the interval; less cannot be told from the coming and going of the interpreter itself.
LEAST_GROWTH = 128 * 1024
RESAMPLES = 2000
MEBIBYTE = 2.0**20
GROWS, FLAT, SHORT = "grows", "flat", "too short to tell"


@dataclass
class Course:
    """Samples of resident memory, one of each list for each."""

    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Growth:
    """Whether memory grows after warm-up, and by how much: bytes per million steps with their 95% interval."""

    verdict: str  # one of GROWS, FLAT, SHORT
    per_million_steps: float = 0.0
    low: float = 0.0
    high: float = 0.0
    growth_bytes: float = 0.0  # during the samples that were judged

    def say(self) -> str:
        """One line."""
        if self.verdict == SHORT:
            return f"{SHORT}: growth is judged from {LEAST_SAMPLES / (1 - WARM_UP) * EVERY:.1f} s of training on"
        low, high, middle = (one / MEBIBYTE for one in (self.low, self.high, self.per_million_steps))
        interval = f"{middle:.2f} MiB per million steps (95% interval {low:.2f} to {high:.2f})"
        return f"{self.verdict}: {interval}, {self.growth_bytes / MEBIBYTE:.1f} MiB after warm-up"


class MemorySampler:
    """While this context lasts, a thread notes the resident memory of this process and of those that it started."""

    def __init__(self, steps: Callable[[], int], every: float = EVERY) -> None:
        self.course = Course()
        self._steps, self._every = steps, every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="memory")
        own = psutil.Process()
        # Looked for once: workers are there before training begins, and the search takes longer than all the rest.
        self._processes = [own, *own.children(recursive=True)]

    @property
    def processes(self) -> int:
        """How many processes the figures are of."""
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
                with contextlib.suppress(psutil.Error):  # a worker that has ended
                    resident += process.memory_info().rss
            course.seconds.append(time.perf_counter() - self._began)
            course.steps.append(self._steps())
            course.bytes.append(resident)
            if self._done.wait(self._every):
                return


def judge_growth(steps: Sequence[float], resident: Sequence[float]) -> Growth:
    """Whether memory grows, from samples in their order.

    After warm-up the samples are cut into parts, and the steps up and down from the median of one part to that of the
    next are drawn anew with replacement. So one jump, of an array that was allocated late, is no leak, while growth
    that goes on is, in whatever steps it comes: its interval is above 0.
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
    """The first sample after warm-up: the first iteration, in which code may be compiled, and a share of the rest."""
    moved = next((i for i, count in enumerate(steps) if count > steps[0]), len(steps))
    return moved + int((len(steps) - moved) * WARM_UP)


def draw_memory(course: Course, path: Path, title: str) -> bool:
    """Draw memory over time as a PNG; False where matplotlib is missing."""
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
    if spread < 0.02 * float(megabytes.max(initial=1.0)):  # pages that come and go are not to look like mountains
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
