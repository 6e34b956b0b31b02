"""Scalar functions of an index, run for every index below a count: as a loop on CPU threads, or as a kernel on a GPU.

`function(i, *arguments, *numbers)` writes what belongs to index i and nothing else, so that no order and no number of
threads can change what comes out. Where sums are wanted, each index writes its own part and a reduction follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from velocirl.engine.registers import as_rows
from velocirl.engine.threads import run_together

# With fewer indices than this for each thread, waking a second one costs more than it saves.
INDICES_PER_THREAD = 1024


class Mapper(Protocol):
    """Runs scalar functions on one device."""

    def bind(self, function: Any, count: int, *arguments: Any, numbers: tuple[Any, ...] = ()) -> Callable[..., None]:
        """Compile `function(i, *arguments, *numbers)` and return what runs it for every i below `count`.

        The arguments are arrays and tuples of them, the same in every run; `numbers` are examples of those scalars that
        each run is called with.
        """
        ...

    def rows(self, array: Any) -> Any:
        """An array with a row for each index as the functions of this device reach it through `row`."""
        ...


class CPUMapper:
    """Runs scalar functions on CPU threads."""

    def __init__(self, threads: int, compile_loop: Callable[..., Callable[..., Any]]) -> None:
        self._threads = threads
        self._compile = compile_loop  # (loop, *arguments) -> machine code

    def bind(self, function: Any, count: int, *arguments: Any, numbers: tuple[Any, ...] = ()) -> Callable[..., None]:
        """See `Mapper`; the indices are shared out to the threads in equal stretches."""
        loop = self._compile(index_loop(function, len(arguments) + len(numbers)), 0, 0, *arguments, *numbers)
        threads = max(1, min(self._threads, count // INDICES_PER_THREAD))
        bounds = [(count * thread // threads, count * (thread + 1) // threads) for thread in range(threads)]

        def run(*numbers: Any) -> None:
            if threads == 1:
                loop(0, count, *arguments, *numbers)
            else:
                run_together([[(loop, (first, stop, *arguments, *numbers))] for first, stop in bounds])

        return run

    def rows(self, array: Any) -> Any:
        """Rows whose shape is part of their type."""
        return as_rows(array) if array.ndim > 1 else array


def index_loop(function: Any, arguments: int) -> Any:
    """A loop over a stretch of indices; compilers want its arguments counted."""

    def loop_1(first, stop, a):
        for i in range(first, stop):
            function(i, a)

    def loop_2(first, stop, a, b):
        for i in range(first, stop):
            function(i, a, b)

    def loop_3(first, stop, a, b, c):
        for i in range(first, stop):
            function(i, a, b, c)

    def loop_4(first, stop, a, b, c, d):
        for i in range(first, stop):
            function(i, a, b, c, d)

    def loop_5(first, stop, a, b, c, d, e):
        for i in range(first, stop):
            function(i, a, b, c, d, e)

    def loop_6(first, stop, a, b, c, d, e, f):
        for i in range(first, stop):
            function(i, a, b, c, d, e, f)

    return (loop_1, loop_2, loop_3, loop_4, loop_5, loop_6)[arguments - 1]
