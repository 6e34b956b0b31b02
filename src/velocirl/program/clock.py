"""Clock: progress and status of an iteration, in arrays of the device, so that a GPU never waits for the host."""

from __future__ import annotations

from typing import Any, NamedTuple

# Columns of a clock's counts, and of its numbers.
FAULT, STOPPED, STEP, RUN_STEP, MINIBATCH, GATHERED, MINIBATCHES, GOOD, COUNTS = range(9)
LEARNING_RATE, MAX_NORM, MAX_VALUE, LOSS_SCALE, NEXT_SCALE, NUMBERS = range(6)
FIRST_LOSS_SCALE = 2.0**16  # initial loss scale of fp16 gradients


class Clock(NamedTuple):
    """Counts and numbers of an iteration, one row per agent."""

    counts: Any  # (agents, COUNTS) int64
    numbers: Any  # (agents, NUMBERS) float64

    @property
    def step(self) -> Any:
        """Number of steps taken in the iteration, shape (1,), as `program.rows.recording` reads it."""
        return self.counts.reshape(-1)[STEP : STEP + 1]


def goes_on(clock, s):
    """Return whether the update of agent `s` continues: no fault, and not stopped."""
    return clock.counts[s, FAULT] == 0 and clock.counts[s, STOPPED] == 0
