"""The CPU target: an environment's functions, compiled and fused into loops over blocks of copies, on threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, cpu_translator
from velocirl.engine.diagnosis import diagnose
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.lifecycle import Copies, lifecycle
from velocirl.engine.loops import RANDOM_BLOCK, advance_loop, begin_loop, random_loop
from velocirl.engine.registers import as_rows
from velocirl.engine.rehearsal import rehearse
from velocirl.engine.threads import PATIENCE, Rounds, run_together

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

ROWS = ("rng", "action", "observation", "final_observation", "mask")  # the arrays with a row for each copy
# With fewer copies than this for each thread, handing out a step costs more than the second thread saves.
COPIES_PER_THREAD = 2048


class CPUTarget:
    """Runs a fleet on CPU cores."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:
        self._environment = environment
        self._rehearsed = False
        self.copies = copies
        self.life = lifecycle(environment)
        self.translator = cpu_translator(environment.id, double=environment.double)
        count = len(copies.elapsed)
        self.threads = min(threads or max(1, min(available_cores(), count // COPIES_PER_THREAD)), count)
        rows = {name: as_rows(getattr(copies, name)) for name in ROWS if getattr(copies, name).ndim > 1}
        self._seen = copies._replace(**rows)
        self.shares = _blocks(self._seen, -(-count // self.threads))  # the copies of each thread

    def prepare(self) -> None:
        """Compile a step now, so that a fault in one of its functions shows here."""
        _ = self._rounds

    def advance(self) -> None:
        """Every copy takes the step that its action says."""
        self._rounds.run()

    def begin(self, chosen: NDArray[Any]) -> None:
        """The chosen copies start a new episode."""
        self._begin(self._seen, chosen)

    def run_randomly(self, steps: int) -> None:
        """Every copy takes `steps` steps with random actions, block by block, so that a block stays in cache."""
        run_together([[(self._run, (block, steps)) for block in _blocks(share, RANDOM_BLOCK)] for share in self.shares])

    @cached_property
    def _rounds(self) -> Rounds:
        advance = self.compile(advance_loop(self.life), self._seen, np.zeros(8, np.int64), PATIENCE)
        return Rounds(advance, self.shares)

    @cached_property
    def _begin(self) -> Callable[..., Any]:
        return self.compile(begin_loop(self.life), self._seen, self.copies.terminated)

    @cached_property
    def _run(self) -> Callable[..., Any]:
        return self.compile(random_loop(self.life), self._seen, 1)

    def compile(self, loop: Any, *arguments: Any) -> Callable[..., Any]:
        """A loop over this environment's functions as machine code, or the person's own line that prevents it."""
        try:
            return compile_loop(loop, arguments, self.translator, before=self._rehearse)
        except (DefinitionError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - numba fails in many ways; all are told as the user's line
            raise diagnose(self._environment, error) from (error if debugging() else None)

    def _rehearse(self) -> None:
        if not self._rehearsed:
            rehearse(self._environment, self.copies.params)
            self._rehearsed = True


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blocks(copies: Copies, size: int) -> list[Copies]:
    """The copies in blocks of a size, the last one smaller where need be."""
    count = len(copies.elapsed)
    return [Copies(*(array[first : first + size] for array in copies)) for first in range(0, count, size)]
