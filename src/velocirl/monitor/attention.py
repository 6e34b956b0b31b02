"""Who has a person's attention: whether anybody looks at this process, and whether something is shown there already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_taken: ContextVar[bool] = ContextVar("taken", default=False)


@contextmanager
def attention() -> Iterator[None]:
    """Have it while this context lasts: trainings within it show nothing by themselves."""
    before = _taken.set(True)
    try:
        yield
    finally:
        _taken.reset(before)


def is_free() -> bool:
    """Whether something may be shown: in the main thread, where nothing else is."""
    return not _taken.get() and threading.current_thread() is threading.main_thread()


def in_notebook() -> bool:
    """Whether a notebook shows what is displayed here: Jupyter's, VS Code's, Colab's."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
