"""Lowering of an iteration to launches over whole batches.

Adjacent row functions become one launch, which a GPU runs as one kernel. Loops and conditions run in Python; in a
captured CUDA graph they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from velocirl.program.iteration import (
    ZERO,
    Advance,
    Choose,
    Listed,
    Loop,
    Once,
    Operations,
    Phase,
    Rows,
    Timed,
)  # fmt: skip

Bound = Sequence[Any]  # row functions, and functions of the time step, in order; see `engine.targets.launching`
Launch = Callable[[list[Any]], Callable[[int], object]]


class Iteration:
    """Iteration over whole batches, from functions bound to operation names."""

    def __init__(self, operations: Operations, bound: Mapping[str, Bound], launch: Launch, **known: int) -> None:
        """`launch` makes one launch of row functions for all rows; `known` counters never change."""
        self._bound, self._launch = bound, launch
        self.counters = {ZERO: 0, **known}
        self._run = self._lower(operations)

    def run(self) -> None:
        """Run the iteration once."""
        self._run()

    def _lower(self, operations: Operations) -> Callable[[], None]:
        steps: list[Callable[[], object]] = []
        pending: list[Any] = []
        moment = ZERO  # counter of the pending functions' time step

        def launch_pending() -> None:
            if pending:
                steps.append(self._at(self._launch(list(pending)), moment))
                pending.clear()

        for one in _flat(operations):
            if isinstance(one, Rows | Advance):
                at = one.at if isinstance(one, Rows) else moment
                for function in self._bound[one.name]:
                    if callable(function):
                        launch_pending()
                        steps.append(self._at(function, at))
                        continue
                    if at != moment:
                        launch_pending()
                        moment = at
                    pending.append(function)
                continue
            launch_pending()
            steps.append(self._lower_other(one))
        launch_pending()

        def run() -> None:
            for step in steps:
                step()

        return run

    def _lower_other(self, one: Any) -> Callable[[], object]:
        counters = self.counters
        if isinstance(one, Listed):  # the bound function iterates over the list itself
            return self._at(self._only(one.find), ZERO)
        if isinstance(one, Once):
            return self._once(one, self._only(one.name))
        if isinstance(one, Loop):
            body = self._lower(one.body)

            def repeat() -> None:
                for turn in range(counters[one.count]):
                    counters[one.counter] = turn
                    body()
                    if one.until is not None and counters[one.until]:
                        break

            return repeat
        assert isinstance(one, Choose)  # noqa: S101 - there are no others
        chosen, otherwise = self._lower(one.body), self._lower(one.otherwise)
        return lambda: chosen() if counters[one.counter] else otherwise()

    def _only(self, name: str) -> Callable[..., Any]:
        (function,) = self._bound[name]
        return function

    def _once(self, one: Once, function: Callable[..., Any]) -> Callable[[], None]:
        counters = self.counters

        def call() -> None:
            found = function(*(counters[name] for name in one.reads))
            if one.into is not None:
                counters[one.into] = found

        return call

    def _at(self, function: Callable[[int], object], moment: str) -> Callable[[], object]:
        counters = self.counters
        return lambda: function(counters[moment])


def _flat(operations: Operations) -> Operations:
    """Flatten phases and timed blocks, which only measure time."""
    return tuple(
        inner
        for one in operations
        for inner in (_flat(one.body) if isinstance(one, Phase | Timed) else (one,))
    )  # fmt: skip


def begun_early(operations: Operations, first: str, after: str) -> Operations:
    """Rotate a loop: its first operation moves to the end of the turn before, which saves a launch.

    `loop(t, n, first(t), ...), first(n), ...` becomes `first(0), loop(t, n, ..., after(t)), ...`: `after(t)` is
    `first(t + 1)`.
    """
    flat = _flat(operations)
    place = next(k for k, one in enumerate(flat) if isinstance(one, Loop))
    around = flat[place]
    assert isinstance(around, Loop)  # noqa: S101 - see above
    body = _flat(around.body)
    if body[0] != Rows(first, around.counter) or flat[place + 1] != Rows(first, around.count):
        raise ValueError(f"the loop over {around.counter!r} and what follows it do not begin with {first!r}")
    turned = Loop(around.counter, around.count, (*body[1:], Rows(after, around.counter)), around.until)
    return (*flat[:place], Rows(first), turned, *flat[place + 2 :])
