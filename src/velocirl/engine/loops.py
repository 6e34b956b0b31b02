"""The loops over copies: advancing, starting and random running of a fleet, composed from one copy's life.

Plain Python runs them as they stand; the CPU compiles them. Each stage is a loop of its own, because a loop that only
steps can be vectorised, and one that also resets cannot.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.engine.lifecycle import Lifecycle
from velocirl.engine.registers import mailbox_read, mailbox_write
from velocirl.engine.threads import DONE, next_round

RANDOM_BLOCK = 256  # copies that a random run carries through many steps together, within the first-level cache
STEP_BLOCK = 2048  # copies that a step takes through its stages together, within the second-level cache


def advance_loop(life: Lifecycle) -> Callable[..., Any]:
    """`advance(copies, mailbox, patience)`: every copy takes the step that its action says; see `threads.Rounds`."""
    move, conclude, show = life.move, life.conclude, life.show

    def advance(copies, mailbox, patience):
        count = copies.elapsed.shape[0]
        done = mailbox_read(mailbox, DONE)
        while patience == 0 or next_round(mailbox, done, patience):
            for start in range(0, count, STEP_BLOCK):
                # Unsigned, so that no index needs the test for a negative one, which would prevent vectorisation.
                first, stop = np.uint64(start), np.uint64(min(start + STEP_BLOCK, count))
                for i in range(first, stop):
                    move(copies, i)
                for i in range(first, stop):
                    conclude(copies, i)
                for i in range(first, stop):
                    show(copies, i)
            if patience == 0:
                break
            done += 1
            mailbox_write(mailbox, DONE, done)

    return advance


def begin_loop(life: Lifecycle) -> Callable[..., Any]:
    """`begin(copies, chosen)`: the chosen copies start a new episode."""
    begin, show = life.begin, life.show

    def begin_chosen(copies, chosen):
        for i in range(np.uint64(chosen.shape[0])):  # unsigned, as in the other loops: the functions are compiled once
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
