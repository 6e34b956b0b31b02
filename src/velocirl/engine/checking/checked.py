"""Bounds-checked fleets: a recorded state before each step locates a fault of compiled code by its line.

With `check=True`, an environment's functions are compiled with checks of every index and of integer division by zero.
Compiled code only reports that a check failed. Each environment therefore keeps its state before its step; the failed
step is repeated in plain Python, which reports the line and the reason.
"""

from __future__ import annotations

import dis
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from velocirl.engine.checking.telling import failed
from velocirl.engine.compiler.registers import as_rows
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.fleets.fleet import allocate
from velocirl.engine.fleets.lifecycle import Copies, Lifecycle
from velocirl.engine.targets.python import PythonTarget

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

BEGINNING, MOVING = 1, 2  # values of `doing`
KEPT = ("state", "params", "rng", "elapsed", "total")  # arrays of the state before a step, kept with the prefix `kept_`


# The fleet's arrays plus, for each environment, its kept state, its current operation (`doing`), whether one of its
# functions is running (`busy`), and the steps since the fleet was made.
WatchedCopies: Any = namedtuple(
    "WatchedCopies", (*Copies._fields, *(f"kept_{name}" for name in KEPT), "doing", "busy", "steps")
)


def watched_life(life: Lifecycle) -> Lifecycle:
    """Return an environment's life cycle that records each environment's state before every operation."""
    begin, move, conclude, show, choose = life

    def keep(copies, i, doing):
        copies.kept_state[i] = copies.state[i]
        copies.kept_params[i] = copies.params[i]
        copies.kept_rng[i] = copies.rng[i]
        copies.kept_elapsed[i] = copies.elapsed[i]
        copies.kept_total[i] = copies.total[i]
        copies.doing[i] = doing

    def watched_begin(copies, i):
        keep(copies, i, BEGINNING)
        copies.busy[i] = True
        begin(copies, i)
        copies.busy[i] = False

    def watched_move(copies, i):
        keep(copies, i, MOVING)
        copies.busy[i] = True
        move(copies, i)
        copies.busy[i] = False
        copies.steps[i] += 1

    def watched_conclude(copies, i):
        copies.busy[i] = True
        conclude(copies, i)
        copies.busy[i] = False

    def watched_show(copies, i):
        copies.busy[i] = True
        show(copies, i)
        copies.busy[i] = False

    return Lifecycle(watched_begin, watched_move, watched_conclude, watched_show, choose)


class Watch:
    """Recorder of one fleet's environments."""

    def __init__(self, environment: Environment, copies: Copies) -> None:
        self._environment, self._copies = environment, copies
        self._kept = {name: np.zeros_like(getattr(copies, name)) for name in KEPT}
        count = len(copies.elapsed)
        self._doing, self._busy, self._steps = (
            np.zeros(count, np.int8),
            np.zeros(count, np.bool_),
            np.zeros(count, np.int64),
        )
        _WATCHES.add(self)

    def beside(self, seen: Copies) -> Any:
        """Return the arrays that compiled code writes, in addition to its usual ones."""
        kept = {**self._kept, "rng": as_rows(self._kept["rng"])}
        return WatchedCopies(*seen, *(kept[name] for name in KEPT), self._doing, self._busy, self._steps)

    def name(self, error: Exception) -> Exception:
        """Return the error that explains a fault in one of these environments; any other error is returned as it is."""
        faulty = np.flatnonzero(self._busy)
        self._busy[:] = False
        for copy in faulty:
            found = self._again(int(copy))
            if found is not None:
                return found
        if len(faulty) == 0:
            return error
        what = f"fails with {type(error).__name__}: {error} in compiled code and not in plain Python"
        return DefinitionError(f"{self._environment.id}: it {what} ({self._moment(int(faulty[0]))})")

    def _again(self, copy: int) -> DefinitionError | None:
        """Repeat an environment's last operation in plain Python; returns its error, or None."""
        single = PythonTarget(self._environment, allocate(self._environment, 1, {}, self._copies.limit))
        for name in KEPT:
            getattr(single.copies, name)[0] = self._kept[name][copy]
        single.copies.action[0] = self._copies.action[copy]
        try:
            with np.errstate(all="ignore", divide="call", call=_refuse_division):
                if self._doing[copy] == BEGINNING:
                    single.begin(np.ones(1, np.bool_))
                else:
                    single.advance()
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is told with its line
            return failed(self._environment, self._function(error), error, self._moment(copy))
        return None

    def _function(self, error: Exception) -> str:
        codes = {function.__code__: name for name, function in self._environment.functions.items()}
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code not in codes:
            trace = trace.tb_next
        return "step" if trace is None else codes[trace.tb_frame.f_code]

    def _moment(self, copy: int) -> str:
        if self._doing[copy] == BEGINNING:
            return f"copy {copy}, as an episode begins, after {self._steps[copy]} steps of it"
        episode = self._kept["elapsed"][copy] + 1
        return f"copy {copy}, step {episode} of its episode, after {self._steps[copy]} steps of it"


_WATCHES: WeakSet[Watch] = WeakSet()  # of this process; the faulty environment is the one whose call did not finish


@contextmanager
def faults_named() -> Iterator[None]:
    """Re-raise errors of compiled code in this context with the environment's own line, if its fleet is recorded."""
    try:
        yield
    except Exception as error:
        for watch in list(_WATCHES):
            if (named := watch.name(error)) is not error:
                raise named from (error if debugging() else None)
        raise


def _refuse_division(kind: str, flag: int) -> None:  # noqa: ARG001 - as NumPy calls it
    """Raise for an integer division by zero, as checked compiled code does; NumPy would silently return 0."""
    frame = sys._getframe(1)
    operation = next(one for one in dis.get_instructions(frame.f_code) if one.offset == frame.f_lasti)
    if operation.argrepr.rstrip("=") in ("//", "%"):
        raise ZeroDivisionError("integer division or modulo by zero")
