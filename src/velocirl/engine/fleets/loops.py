"""Loops over environments: stepping, starting and sampling actions of a fleet, composed from the life cycle.

Plain Python runs them as they are; the CPU compiles each as a unit. Each stage is a separate loop: one that only steps
can be vectorized, one that also resets cannot.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.fleets.lifecycle import Lifecycle

RANDOM_BLOCK = 256  # environments that a random run takes through many steps together, within the L1 cache
STEP_BLOCK = 2048  # environments that a step takes through its stages together, within the L2 cache


def advance_loop(life: Lifecycle) -> Callable[..., Any]:
    """Make `advance((copies,), first, stop, place)`, which steps a range of environments by their actions."""
    move, conclude, show = life.move, life.conclude, life.show

    def advance(arguments, first, stop, place):  # noqa: ARG001 - as every unit
        copies = arguments[0]
        for start in range(first, stop, STEP_BLOCK):
            # Unsigned, so that no index needs the test for a negative one, which would prevent vectorization.
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
    """Make `begin((copies, chosen), first, stop, place)`: the chosen environments of a range start a new episode."""
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
    """Make `show_all((copies,), first, stop, place)`, which rewrites the observations of a range."""
    show = life.show

    def show_all(arguments, first, stop, place):  # noqa: ARG001
        copies = arguments[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            show(copies, i)
        return 0

    return show_all


class Chances(NamedTuple):
    """Arrays that determine a random action: the same for all environments with the same action space."""

    rng: NDArray[Any]
    action: NDArray[Any]
    mask: NDArray[Any]


def chances_of(copies: Any) -> Chances:
    """Return the arrays of a fleet that determine a random action."""
    return Chances(copies.rng, copies.action, copies.mask)


def choose_loop(life: Lifecycle) -> Callable[..., Any]:
    """Make `choose_all((chances,), first, stop, place)`, which samples random legal actions for a range."""
    choose = life.choose

    def choose_all(arguments, first, stop, place):  # noqa: ARG001
        chances = arguments[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            choose(chances, i)
        return 0

    return choose_all


# Functions for a single environment, for devices that run one thread per environment.


def stepping(life: Lifecycle) -> Callable[..., Any]:
    """Make `step(i, r, place, copies)`, which steps environment i by its action."""
    move, conclude, show = life.move, life.conclude, life.show

    def step(i, r, place, copies):  # noqa: ARG001 - every function of an index has the same first arguments
        move(copies, i)
        conclude(copies, i)
        show(copies, i)

    return step


def beginning(life: Lifecycle) -> Callable[..., Any]:
    """Make `begin(i, r, place, copies, chosen)`: environment i starts a new episode, if it is chosen."""
    begin, show = life.begin, life.show

    def begin_chosen(i, r, place, copies, chosen):  # noqa: ARG001
        if chosen[i]:
            begin(copies, i)
            show(copies, i)

    return begin_chosen


def running(life: Lifecycle) -> Callable[..., Any]:
    """Make `run(i, r, place, copies)`, which takes `place` steps with random actions in environment i."""
    choose, move, conclude, show = life.choose, life.move, life.conclude, life.show

    def run(i, r, place, copies):  # noqa: ARG001
        for _ in range(place):
            choose(copies, i)
            move(copies, i)
            conclude(copies, i)
            show(copies, i)

    return run
