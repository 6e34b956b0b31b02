"""A flame graph of the Python side of training, drawn from a run of its own: a sampler slows down what it looks at."""

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

INTERVAL = 0.001  # seconds from one look at the stack to the next
FLAME, CALLS = "flame.html", "calls.html"
COMPILED = "_Closure."  # how numba names what it compiled from the functions of a loop
LEARN = "learn"
MISSING = 'the flame graph needs pyinstrument: pip install "velocirl[profile]"'


@dataclass(frozen=True)
class Flame:
    """A flame graph that was written, and what looking cost."""

    file: str  # the flame graph
    calls: str  # pyinstrument's own page of the same samples
    samples: int
    seconds: float
    interval: float
    slowdown: float  # how much slower training was than without the sampler, as a share: 0.05 is 5%


def flame_missing() -> str | None:
    """What to do where nothing can be drawn, or None."""
    return MISSING if importlib.util.find_spec("pyinstrument") is None else None


def draw_flame(train: Callable[[], Training], directory: Path, title: str, rate: float) -> tuple[Flame, Training]:
    """Let `train` run under the sampler and write two HTML files that need nothing else: flames, and a tree of calls.

    `rate` is the speed without the sampler, in steps/s.
    """
    from pyinstrument import Profiler  # an extra

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
    # Its fonts would be fetched from the web; the browser has some of its own.
    calls = re.sub(r"https://fonts\.googleapis\.com/[^\"]*", "data:text/css,", profiler.output_html())
    write_shared(directory / CALLS, [calls.encode()])
    slowdown = rate / training.rate - 1.0 if training.rate > 0 and rate > 0 else 0.0
    return Flame(FLAME, CALLS, session.sample_count, session.duration, INTERVAL, slowdown), training


def boxes_of(frames: Iterable[Any]) -> tuple[Box, ...]:
    """Frames of pyinstrument and those below them, the longest first; calls of one function are one box.

    Frames that only stand for time in the one above are left out: there, the box above is seen.
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
    """The frame of `learn`: what calls it here is no part of training."""
    frame = root
    while frame is not None and frame.function != LEARN:
        frame = max(frame.children, key=lambda one: one.time, default=None)
    return root if frame is None else frame
