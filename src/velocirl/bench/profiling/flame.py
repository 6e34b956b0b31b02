"""Flame graph of training's Python code, from a separate run, because a sampler slows down the code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.bench.profiling.flame_page import Box, flame_page
from velocirl.bench.profiling.watching import Training
from velocirl.engine.disk.writing import write_shared

INTERVAL = 0.001  # seconds between samples of the stack
FLAME, CALLS = "flame.html", "calls.html"
COMPILED = "_Closure."  # numba's prefix for code compiled from a loop's functions
LEARN = "learn"
MISSING = 'the flame graph needs pyinstrument: pip install "velocirl[profile]"'


@dataclass(frozen=True)
class Flame:
    """A written flame graph, and the sampler's cost."""

    file: str  # the flame graph
    calls: str  # pyinstrument's own page of the same samples
    samples: int
    seconds: float
    interval: float
    slowdown: float  # of training by the sampler, as a fraction: 0.05 is 5%


def flame_missing() -> str | None:
    """Return instructions if pyinstrument is not installed, else None."""
    return MISSING if importlib.util.find_spec("pyinstrument") is None else None


def draw_flame(train: Callable[[], Training], directory: Path, title: str, rate: float) -> tuple[Flame, Training]:
    """Run `train` under the sampler and write two self-contained HTML files: a flame graph and a call tree.

    `rate` is the speed without the sampler, in steps/s. Returns the flame graph and the sampled training.
    """
    from pyinstrument import Profiler  # optional dependency

    profiler = Profiler(interval=INTERVAL, async_mode="disabled")
    with profiler:
        training = train()
    session = profiler.last_session
    assert session is not None  # noqa: S101 - it has just ended
    root = session.root_frame()
    flames = flame_page(
        () if root is None else boxes_of([_from_learn(root)]), f"{title}, {session.sample_count:,} samples"
    )
    write_shared(directory / FLAME, [flames.encode()])
    # pyinstrument's page would load fonts from the web: use the browser's own instead.
    calls = re.sub(r"https://fonts\.googleapis\.com/[^\"]*", "data:text/css,", profiler.output_html())
    write_shared(directory / CALLS, [calls.encode()])
    slowdown = rate / training.rate - 1.0 if training.rate > 0 and rate > 0 else 0.0
    return Flame(FLAME, CALLS, session.sample_count, session.duration, INTERVAL, slowdown), training


def boxes_of(frames: Iterable[Any]) -> tuple[Box, ...]:
    """Convert pyinstrument's frames and their children to boxes, the longest first; calls of one function share a box.

    Synthetic frames, which only stand for time in the frame above, are omitted: that time shows in the box above.
    """
    alike: dict[tuple[str, str], list[Any]] = {}
    for frame in frames:
        if not frame.is_synthetic:
            alike.setdefault(_named(frame), []).append(frame)
    boxes = [
        Box(
            name, place, sum(float(one.time) for one in same), boxes_of(below for one in same for below in one.children)
        )
        for (name, place), same in alike.items()
    ]
    return tuple(sorted(boxes, key=lambda box: -box.seconds))


def _named(frame: Any) -> tuple[str, str]:
    name = str(frame.function)
    if name.startswith(COMPILED):
        return "compiled loop", ""
    return name, f"{frame.file_path_short}:{frame.line_no}" if frame.line_no else ""


def _from_learn(root: Any) -> Any:
    """Return the frame of `learn`: its callers are not part of training."""
    frame = root
    while frame is not None and frame.function != LEARN:
        frame = max(frame.children, key=lambda one: one.time, default=None)
    return root if frame is None else frame
