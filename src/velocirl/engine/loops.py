"""The loops over copies: advancing, starting and random running of a fleet, composed from one copy's life.

Plain Python runs them as they stand; the CPU compiles them. Each stage is a loop of its own, because a loop that only
steps can be vectorised, and one that also resets cannot.
"""

from collections.abc import Callable
from typing import Any

from velocirl.engine.lifecycle import Lifecycle

BLOCK = 256  # copies that a random run carries through many steps together: small enough for the first-level caches


def advance_loop(life: Lifecycle) -> Callable[..., Any]:
    """`advance(copies)`: every copy takes the step that its action says."""
    move, conclude, show = life.move, life.conclude, life.show

    def advance(copies):
        count = copies.elapsed.shape[0]
        for i in range(count):
            move(copies, i)
        for i in range(count):
            conclude(copies, i)
        for i in range(count):
            show(copies, i)

    return advance


def begin_loop(life: Lifecycle) -> Callable[..., Any]:
    """`begin(copies, chosen)`: the chosen copies start a new episode."""
    begin, show = life.begin, life.show

    def begin_chosen(copies, chosen):
        for i in range(chosen.shape[0]):
            if chosen[i]:
                begin(copies, i)
                show(copies, i)

    return begin_chosen


def random_loop(life: Lifecycle) -> Callable[..., Any]:
    """`run_randomly(copies, steps)`: every copy takes many steps with random actions."""
    choose, move, conclude, show = life.choose, life.move, life.conclude, life.show

    def run_randomly(copies, steps):
        count = copies.elapsed.shape[0]
        for _ in range(steps):
            for i in range(count):
                choose(copies, i)
            for i in range(count):
                move(copies, i)
            for i in range(count):
                conclude(copies, i)
            for i in range(count):
                show(copies, i)

    return run_randomly
