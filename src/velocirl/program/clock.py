"""Clock: how far an iteration is and how it goes, in arrays of the device, so that a GPU never waits for the host."""

from __future__ import annotations

from typing import Any, NamedTuple

# The columns of a clock's counts, and of its numbers.
FAULT, STOPPED, STEP, RUN_STEP, MINIBATCH, GATHERED, MINIBATCHES, GOOD, COUNTS = range(9)
LEARNING_RATE, MAX_NORM, MAX_VALUE, LOSS_SCALE, NEXT_SCALE, NUMBERS = range(6)
FIRST_LOSS_SCALE = 2.0**16  # of fp16's gradients


class Clock(NamedTuple):
    """Counts and numbers of an iteration; a row for each agent."""

    counts: Any  # (agents, COUNTS) int64
    numbers: Any  # (agents, NUMBERS) float64

    @property
    def step(self) -> Any:
        """The count of steps of an iteration, as `recording` reads it."""
        return self.counts.reshape(-1)[STEP : STEP + 1]


def goes_on(clock, s):
    """Return whether the update of an agent was neither stopped nor at fault."""
    return clock.counts[s, FAULT] == 0 and clock.counts[s, STOPPED] == 0
