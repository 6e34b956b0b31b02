"""CPU target: an environment's functions as units, which threads call for blocks of environments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property, partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.checking.checked import Watch, faults_named, watched_life
from velocirl.engine.checking.diagnosis import diagnose
from velocirl.engine.checking.rehearsal import rehearse
from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.registers import as_rows
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit, compile_waiting
from velocirl.engine.errors import DefinitionError
from velocirl.engine.fleets.lifecycle import Copies, each_array, lifecycle
from velocirl.engine.fleets.loops import RANDOM_BLOCK, advance_loop, begin_loop, chances_of, choose_loop, show_loop
from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.team import Team

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

# The arrays with one row per environment.
ROWS = (
    "rng", "action", "observation", "final_observation", "mask", "final_mask", "costs", "cost_total", "episode_costs",
)  # fmt: skip
# With fewer environments per thread, distributing a step costs more than the second thread saves.
COPIES_PER_THREAD = 2048
# A step that takes less time, in nanoseconds, is not distributed; the first calls measure it.
WORTH_SHARING, FIRST_CALLS = 20_000, 8


def choose_and_advance(arguments, first, stop, place):
    """Take `place` steps with random actions in a range of environments, by two units: sampling and stepping."""
    choose, advance = arguments
    for begin in range(first, stop, RANDOM_BLOCK):
        end = min(begin + RANDOM_BLOCK, stop)
        for _ in range(place):
            call_unit(choose, begin, end, 0)
            call_unit(advance, begin, end, 0)
    return 0


class CPUTarget:
    """Target that runs a fleet on CPU cores."""

    def __init__(
        self, environment: Environment, copies: Copies, threads: int | None = None, *, check: bool = False
    ) -> None:
        self._environment = environment
        self._rehearsed = False
        self.copies = copies
        self.life = watched_life(lifecycle(environment)) if check else lifecycle(environment)
        self.translator = cpu_translator(environment.id, double=environment.double, check=check)
        self._count = len(copies.elapsed)
        self.threads = min(threads or max(1, min(available_cores(), self._count // COPIES_PER_THREAD)), self._count)
        rows = {name: as_rows(getattr(copies, name)) for name in ROWS if getattr(copies, name).ndim > 1}
        self._seen = copies._replace(**rows)
        if check:
            self._watch = Watch(environment, copies)
            self._seen = self._watch.beside(self._seen)
            for method in (self.advance, self.begin, self.run_randomly):
                setattr(self, method.__name__, faults_named()(method))
        self._tried: list[int] = []  # nanoseconds of the first steps
        share = -(-self._count // self.threads)
        self._chooses = threads is None and min(available_cores(), self._count) > 1
        # The environments of each thread, as index ranges and as arrays.
        self.ranges = [(first, min(first + share, self._count)) for first in range(0, self._count, share)]
        self.shares = [each_array(operator.itemgetter(slice(*span)), self._seen) for span in self.ranges]

    def prepare(self) -> None:
        """Compile a step now, so that an error in one of its functions is raised here."""
        _ = self.advance_unit
        compile_waiting()

    def advance(self) -> None:
        """Step every environment by its action."""
        if (settled := self._advance()) is not None:
            self._advance = settled

    def advance_into(self, observation: NDArray[Any]) -> None:
        """Step into the caller's observation array, laid out like the fleet's own, which is then out of date."""
        with self.advance_unit.redirected(self.copies.observation, observation):
            self.advance()

    def show(self) -> None:
        """Update the fleet's own observations."""
        self._show_unit(0, self._count)

    def begin(self, chosen: NDArray[Any]) -> None:
        """Start a new episode in the chosen environments."""
        self._chosen[:] = chosen
        self.begin_unit(0, self._count)

    def run_randomly(self, steps: int) -> None:
        """Take `steps` steps with random actions in every environment, block by block: a block stays in cache."""
        self._run(steps)

    @cached_property
    def advance_unit(self) -> BoundUnit:
        """Unit that steps a range of environments by their actions."""
        return self.bind(advance_loop(self.life), self._seen)

    @cached_property
    def begin_unit(self) -> BoundUnit:
        """Unit that starts a new episode in the chosen environments of a range."""
        return self.bind(begin_loop(self.life), self._seen, self._chosen)

    @cached_property
    def _chosen(self) -> NDArray[np.bool_]:
        return np.zeros(self._count, np.bool_)

    @cached_property
    def _show_unit(self) -> BoundUnit:
        return self.bind(show_loop(self.life), self._seen)

    @cached_property
    def _run_unit(self) -> BoundUnit:
        units = self._choose_unit.frame, self.advance_unit.frame
        return bind_unit(choose_and_advance, units, cpu_translator("fleet", double=True), disjoint=False)

    @cached_property
    def _run(self) -> Callable[[int], None]:
        return self._team.ranges([self._run_unit], self._count)

    @cached_property
    def _choose_unit(self) -> BoundUnit:
        return self.bind(choose_loop(self.life), chances_of(self._seen))

    @cached_property
    def _team(self) -> Team:
        return Team(min(available_cores(), self._count) if self._chooses else self.threads)

    @cached_property
    def _advance(self) -> Callable[[], Any]:
        if self._chooses:
            return self._try
        return self._alone if self.threads == 1 else partial(self._team.ranges([self.advance_unit], self._count), 0)

    def _alone(self) -> None:
        self.advance_unit(0, self._count)

    def _try(self) -> Callable[[], Any] | None:
        """Step in one thread; after some calls, return the function that steps from now on."""
        began = perf_counter_ns()
        self._alone()
        self._tried.append(perf_counter_ns() - began)
        if len(self._tried) < FIRST_CALLS:
            return None
        too_short = min(self._tried) < WORTH_SHARING
        return self._alone if too_short else partial(self._team.ranges([self.advance_unit], self._count), 0)

    def bind(self, loop: Any, *arguments: Any) -> BoundUnit:
        """Bind a unit of this environment's functions; compiler errors are reported by the user's own line."""
        return bind_unit(loop, arguments, self.translator, self._rehearse, explain=self._explain)

    def _explain(self, error: Exception) -> Exception:
        """Convert a compiler error to a message about the user's own line; numba fails in many ways."""
        return error if isinstance(error, (DefinitionError, OSError)) else diagnose(self._environment, error)

    def _rehearse(self) -> None:
        if not self._rehearsed:
            rehearse(self._environment, self.copies.params)
            self._rehearsed = True
