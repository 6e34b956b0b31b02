"""Plain Python target: the same functions, uncompiled, for stepping through with a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from velocirl.engine.fleets.lifecycle import ARRAYS, Copies, lifecycle
from velocirl.engine.fleets.loops import advance_loop, begin_loop, chances_of, choose_loop
from velocirl.engine.records import with_attributes

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


class PythonTarget:
    """Target that runs a fleet in the interpreter."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:  # noqa: ARG002
        self.life = lifecycle(environment)
        self._advance, self._begin = advance_loop(self.life), begin_loop(self.life)
        self._choose = choose_loop(self.life)
        self._count = len(copies.elapsed)
        # Records with fields as attributes, as the functions access them.
        names = [name for name in ARRAYS if getattr(copies, name).dtype.names]
        self.copies = copies._replace(**{name: with_attributes(getattr(copies, name)) for name in names})

    def prepare(self) -> None:
        """Do nothing: no work precedes the first step."""

    def advance(self) -> None:
        """Step every environment by its action."""
        self._advance((self.copies,), 0, self._count, 0)

    def begin(self, chosen: NDArray[Any]) -> None:
        """Start a new episode in the chosen environments."""
        self._begin((self.copies, chosen), 0, self._count, 0)

    def run_randomly(self, steps: int) -> None:
        """Take `steps` steps with random actions in every environment."""
        for _ in range(steps):
            self._choose((chances_of(self.copies),), 0, self._count, 0)
            self.advance()
