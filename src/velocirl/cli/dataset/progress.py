"""Progress bar with the remaining time, shown after two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 2.0  # seconds before the bar is shown

Told = Callable[[str], Callable[[int, int], None]]


@contextmanager
def showing_progress(console: Console) -> Iterator[Told]:
    """Yield `told(what)`, which starts a task and returns its function `update(done, total)`."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    began, tasks = time.monotonic(), {}
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    shown = False

    def told(what: str) -> Callable[[int, int], None]:
        def update(done: int, total: int) -> None:
            nonlocal shown
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)
            if not shown and time.monotonic() - began > PATIENCE:
                bar.start()
                shown = True

        return update

    try:
        yield told
    finally:
        if shown:
            bar.stop()


def quietly(console: Console, text: str, **options: Any) -> None:
    """Print text without markup, wrapping or highlighting."""
    console.print(text, markup=False, soft_wrap=True, highlight=False, **options)
