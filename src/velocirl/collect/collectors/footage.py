"""Frames from a free-running collector: two per step, and those before a batch that its stacks need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BEFORE, AFTER = range(2)  # newest frame of the observation before a step, and after it in the same episode


class Footage(NamedTuple):
    """Frames of consecutive rounds of one collector."""

    frames: NDArray[np.uint8]  # (rows, 2, bytes)
    breaks: NDArray[np.bool_]  # (rounds,) where a round does not follow the one before it
    lead: NDArray[np.uint8]  # (rounds, environments, bytes) frames before each of the preceding steps
    number: int  # of the first round, among all rounds of its collector
    stack: int  # frames of an observation

    def parted(self, rounds: int) -> tuple[Footage, Footage]:
        """Split into the first `rounds` rounds and the rest."""
        place = rounds * self.lead.shape[1]
        first = self._replace(frames=self.frames[:place], breaks=self.breaks[:rounds])
        rest = self._replace(frames=self.frames[place:], breaks=self.breaks[rounds:], number=self.number + rounds)
        return first, rest._replace(lead=first.following_lead())

    def following_lead(self) -> NDArray[np.uint8]:
        """Return the frames before the last of these steps: the lead of the following rounds."""
        seen = self.frames[:, BEFORE].reshape(-1, *self.lead.shape[1:])
        broken = np.flatnonzero(self.breaks)
        known = seen[broken[-1] :] if len(broken) else np.concatenate([self.lead, seen])
        return known[max(len(known) - (self.stack - 1), 0) :]
