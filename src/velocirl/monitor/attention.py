"""Ownership of the display: whether the process is watched, and whether something is shown already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_taken: ContextVar[bool] = ContextVar("taken", default=False)


@contextmanager
def attention() -> Iterator[None]:
    """Own the display while this context lasts: trainings within it show nothing themselves."""
    before = _taken.set(True)
    try:
        yield
    finally:
        _taken.reset(before)


def is_free() -> bool:
    """Return whether a display may be opened: in the main thread, if there is no other."""
    return not _taken.get() and threading.current_thread() is threading.main_thread()


def in_notebook() -> bool:
    """Return whether a notebook shows the output: Jupyter, VS Code or Colab."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
