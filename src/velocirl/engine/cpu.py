"""The CPU target: an environment's functions, compiled and fused into loops over blocks of copies, on threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, cpu_translator
from velocirl.engine.diagnosis import diagnose
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.lifecycle import Copies, lifecycle
from velocirl.engine.loops import BLOCK, advance_loop, begin_loop, random_loop
from velocirl.engine.registers import as_rows
from velocirl.engine.rehearsal import rehearse
from velocirl.engine.threads import TEAM

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

ROWS = ("rng", "action", "observation", "final_observation", "mask")  # the arrays with a row for each copy
STEP_BLOCK = 4096  # copies a step takes at a time, so that its stages find them in the second-level cache
# Waking a thread costs about as much as stepping a few thousand copies of a small environment.
COPIES_PER_THREAD = 8192


class CPUTarget:
    """Runs a fleet on CPU cores."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:
        self._environment = environment
        self._rehearsed = False
        self.copies = copies
        self._life = lifecycle(environment)
        self._translator = cpu_translator(environment.id, double=environment.double)
        count = len(copies.elapsed)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = min(threads or max(1, min(cores, count // COPIES_PER_THREAD)), count)
        rows = {name: as_rows(getattr(copies, name)) for name in ROWS if getattr(copies, name).ndim > 1}
        self._seen = copies._replace(**rows)
        advance = self._compile(advance_loop(self._life), self._seen)
        self._shares = [[(advance, (block,)) for block in share] for share in self._split(STEP_BLOCK)]

    def advance(self) -> None:
        """Every copy takes the step that its action says."""
        TEAM.run(self._shares)

    def begin(self, chosen: NDArray[Any]) -> None:
        """The chosen copies start a new episode."""
        self._begin(self._seen, chosen)

    def run_randomly(self, steps: int) -> None:
        """Every copy takes `steps` steps with random actions, block by block, so that a block stays in cache."""
        TEAM.run([[(self._run, (block, steps)) for block in share] for share in self._split(BLOCK)])

    @cached_property
    def _begin(self) -> Callable[..., Any]:
        return self._compile(begin_loop(self._life), self._seen, self.copies.terminated)

    @cached_property
    def _run(self) -> Callable[..., Any]:
        return self._compile(random_loop(self._life), self._seen, 1)

    def _compile(self, loop: Any, *arguments: Any) -> Callable[..., Any]:
        try:
            return compile_loop(loop, arguments, self._translator, before=self._rehearse)
        except (DefinitionError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - numba fails in many ways; all are told as the user's line
            raise diagnose(self._environment, error) from (error if debugging() else None)

    def _rehearse(self) -> None:
        if not self._rehearsed:
            rehearse(self._environment, self.copies.params)
            self._rehearsed = True

    def _split(self, block: int) -> list[list[Copies]]:
        """The copies in blocks, an even share of them for each thread."""
        count = len(self.copies.elapsed)
        bounds = [count * thread // self.threads for thread in range(self.threads + 1)]
        return [
            [_block(self._seen, first, min(first + block, stop)) for first in range(start, stop, block)]
            for start, stop in pairwise(bounds)
        ]


def _block(copies: Copies, start: int, stop: int) -> Copies:
    return Copies(*(array[start:stop] for array in copies))
