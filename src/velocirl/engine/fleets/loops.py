"""The loops over copies: advancing, starting and random choosing of a fleet, composed from one copy's life.

Plain Python runs them as they stand; the CPU compiles each as a unit. Each stage is a loop of its own, because a loop
that only steps can be vectorised, and one that also resets cannot.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.fleets.lifecycle import Lifecycle

RANDOM_BLOCK = 256  # copies that a random run carries through many steps together, within the first-level cache
STEP_BLOCK = 2048  # copies that a step takes through its stages together, within the second-level cache


def advance_loop(life: Lifecycle) -> Callable[..., Any]:
    """`advance((copies,), first, stop, place)`: copies of a range take the step that their action says."""
    move, conclude, show = life.move, life.conclude, life.show

    def advance(arguments, first, stop, place):  # noqa: ARG001 - as every unit
        copies = arguments[0]
        for start in range(first, stop, STEP_BLOCK):
            # Unsigned, so that no index needs the test for a negative one, which would prevent vectorisation.
            begin, end = np.uint64(start), np.uint64(min(start + STEP_BLOCK, stop))
            for i in range(begin, end):
                move(copies, i)
            for i in range(begin, end):
                conclude(copies, i)
            for i in range(begin, end):
                show(copies, i)
        return 0

    return advance


def begin_loop(life: Lifecycle) -> Callable[..., Any]:
    """`begin((copies, chosen), first, stop, place)`: those of a range that are chosen start a new episode."""
    begin, show = life.begin, life.show

    def begin_chosen(arguments, first, stop, place):  # noqa: ARG001
        copies, chosen = arguments
        for i in range(np.uint64(first), np.uint64(stop)):
            if chosen[i]:
                begin(copies, i)
                show(copies, i)
        return 0

    return begin_chosen


def show_loop(life: Lifecycle) -> Callable[..., Any]:
    """`show_all((copies,), first, stop, place)`: copies of a range see again what they see."""
    show = life.show

    def show_all(arguments, first, stop, place):  # noqa: ARG001
        copies = arguments[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            show(copies, i)
        return 0

    return show_all


class Chances(NamedTuple):
    """What of copies decides a random action: the same arrays for all environments with the same actions."""

    rng: NDArray[Any]
    action: NDArray[Any]
    mask: NDArray[Any]


def chances_of(copies: Any) -> Chances:
    """Those of these copies."""
    return Chances(copies.rng, copies.action, copies.mask)


def choose_loop(life: Lifecycle) -> Callable[..., Any]:
    """`choose_all((chances,), first, stop, place)`: copies of a range draw random legal actions."""
    choose = life.choose

    def choose_all(arguments, first, stop, place):  # noqa: ARG001
        chances = arguments[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            choose(chances, i)
        return 0

    return choose_all


# The same for one copy, for devices that take copies one by one.


def stepping(life: Lifecycle) -> Callable[..., Any]:
    """`step(i, r, place, copies)`: copy i takes the step that its action says."""
    move, conclude, show = life.move, life.conclude, life.show

    def step(i, r, place, copies):  # noqa: ARG001 - every function of an index has the same first arguments
        move(copies, i)
        conclude(copies, i)
        show(copies, i)

    return step


def beginning(life: Lifecycle) -> Callable[..., Any]:
    """`begin(i, r, place, copies, chosen)`: copy i starts a new episode, if it is chosen."""
    begin, show = life.begin, life.show

    def begin_chosen(i, r, place, copies, chosen):  # noqa: ARG001
        if chosen[i]:
            begin(copies, i)
            show(copies, i)

    return begin_chosen


def running(life: Lifecycle) -> Callable[..., Any]:
    """`run(i, r, place, copies)`: copy i takes `place` steps with random actions."""
    choose, move, conclude, show = life.choose, life.move, life.conclude, life.show

    def run(i, r, place, copies):  # noqa: ARG001
        for _ in range(place):
            choose(copies, i)
            move(copies, i)
            conclude(copies, i)
            show(copies, i)

    return run
