"""Launchers of functions of an index over a range: in Python, or on threads.

A launch is a list of work: functions `function(i, r, place, *arguments)` (see `indexing`). A GPU calls them one after
the other for an index, within a single kernel. They must not read data that a function of the same launch wrote for
another index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from velocirl.engine.compiler.columns import rows_at
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.indexing import index_loop
from velocirl.engine.targets.team import Team

# With fewer indices per thread, waking a second thread costs more than it saves.
INDICES_PER_THREAD = 4096


class Work(NamedTuple):
    """Function of an index and its arguments: arrays, records and tuples of them."""

    function: Any
    arguments: tuple[Any, ...]
    owner: Any = None  # on a GPU, for an environment's functions: provides their translator and error messages


class Divided(NamedTuple):
    """Work for `parts` parts of each index, one thread per part; all threads synchronize before and after it."""

    work: Work
    parts: int


class Bound(NamedTuple):
    """CPU unit that processes a range of indices by itself."""

    unit: BoundUnit


class Launcher(Protocol):
    """Launcher of work on one device."""

    def launch(self, works: Sequence[Any], count: int) -> Callable[[int], None]:
        """Return a function of `place` that runs the work for every index below `count`."""
        ...


def by_row(function: Callable[..., Any], head: Any = None) -> Callable[..., Any]:
    """Convert a scalar function of rows to a function of an index, whose only arguments are columns."""

    def run(i, r, place, *columns):
        function(*rows_at(columns, i, r, place))

    def run_with_head(i, r, place, *columns):
        function(head, *rows_at(columns, i, r, place))

    made = run if head is None else run_with_head
    made.__name__ = function.__name__  # shown by profilers and debuggers
    return made


class PythonLauncher:
    """Launcher in the interpreter, for stepping through with a debugger."""

    def launch(self, works: Sequence[Work], count: int) -> Callable[[int], None]:
        """Return the runner, see `Launcher`; it runs all indices of one function, then of the next."""

        def run(place: int = 0) -> None:
            for function, arguments, _ in works:
                for i in range(count):
                    function(i, i, place, *arguments)

        return run


class DividingLauncher:
    """Launcher of partly divided work on a device that runs launches in sequence."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def launch(self, works: Sequence[Any], count: int) -> Callable[[int], None]:
        """Return the runner, see `Launcher`; divided work is a separate launch."""
        runs = []
        for divided, some in groupby(works, lambda work: isinstance(work, Divided)):
            if divided:
                runs += [self._launcher.launch([one.work], count * one.parts) for one in some]
            else:
                runs.append(self._launcher.launch(list(some), count))
        if len(runs) == 1:
            return runs[0]

        def run(place: int = 0) -> None:
            for one in runs:
                one(place)

        return run


class CPULauncher:
    """Launcher on CPU threads, which claim ranges of the indices."""

    def __init__(self, threads: int, translator: Translator) -> None:
        self._team, self._translator = Team(threads, frames=4096), translator

    def launch(self, works: Sequence[Work | Bound], count: int) -> Callable[[int], None]:
        """Return the runner, see `Launcher`."""
        units = [self._bind(work) for work in works]
        if min(self._team.threads, count // INDICES_PER_THREAD) > 1:
            return self._team.ranges(units, count)

        def run(place: int = 0) -> None:
            for unit in units:
                unit(0, count, place)

        return run

    def _bind(self, work: Work | Bound) -> BoundUnit:
        if isinstance(work, Bound):
            return work.unit
        loop: Any = index_loop(work.function)
        return bind_unit(loop, work.arguments, self._translator)
