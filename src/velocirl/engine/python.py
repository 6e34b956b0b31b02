"""The plain Python target: the same functions, uncompiled, to step through with a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.lifecycle import Copies, lifecycle
from velocirl.engine.loops import advance_loop, begin_loop, random_loop

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


class PythonTarget:
    """Runs a fleet in the interpreter."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:  # noqa: ARG002
        life = lifecycle(environment)
        self._advance, self._begin, self._run = advance_loop(life), begin_loop(life), random_loop(life)
        self._no_mailbox = np.zeros(8, np.int64)
        # Rows of a recarray have their fields as attributes, as the functions write them.
        records = {name: getattr(copies, name).view(np.recarray) for name in ("state", "params", "final_state")}
        self.copies = copies._replace(**records)

    def prepare(self) -> None:
        """Nothing is left to be done before a step."""

    def advance(self) -> None:
        """Every copy takes the step that its action says."""
        self._advance(self.copies, self._no_mailbox, 0)

    def begin(self, chosen: NDArray[Any]) -> None:
        """The chosen copies start a new episode."""
        self._begin(self.copies, chosen)

    def run_randomly(self, steps: int) -> None:
        """Every copy takes `steps` steps with random actions."""
        self._run(self.copies, steps)
