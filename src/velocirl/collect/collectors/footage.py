"""The frames that a free collector brings: two for each step, and those before a batch, which its stacks need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BEFORE, AFTER = range(2)  # the newest frame of what was seen before a step, and after it in the same episode


class Footage(NamedTuple):
    """The frames of consecutive rounds of one collector."""

    frames: NDArray[np.uint8]  # (rows, 2, bytes)
    breaks: NDArray[np.bool_]  # (rounds,) where a round does not follow the one before it
    lead: NDArray[np.uint8]  # (rounds, copies, bytes) what was seen before each of the last steps before these
    number: int  # of the first round, among all of its collector
    stack: int  # frames of an observation

    def parted(self, rounds: int) -> tuple[Footage, Footage]:
        """The first so many rounds, and the others."""
        place = rounds * self.lead.shape[1]
        first = self._replace(frames=self.frames[:place], breaks=self.breaks[:rounds])
        rest = self._replace(frames=self.frames[place:], breaks=self.breaks[rounds:], number=self.number + rounds)
        return first, rest._replace(lead=first.following_lead())

    def following_lead(self) -> NDArray[np.uint8]:
        """What was seen before the last of these steps, as the lead of the rounds that follow."""
        seen = self.frames[:, BEFORE].reshape(-1, *self.lead.shape[1:])
        broken = np.flatnonzero(self.breaks)
        known = seen[broken[-1] :] if len(broken) else np.concatenate([self.lead, seen])
        return known[max(len(known) - (self.stack - 1), 0) :]
