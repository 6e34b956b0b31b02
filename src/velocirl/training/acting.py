"""What every actor has: rows for observations, masks and actions, and the normaliser that it looks through."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.registers import as_rows
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.observations import raw_space
from velocirl.training.collecting import Eyes
from velocirl.learners.normalising import RunningMoments


class Acting:
    """The rows of as many observations as came last."""

    def __init__(
        self,
        head: Head,
        encoding: Encoding,
        observation_space: Space[Any],
        action_space: Space[Any],
        rng: NDArray[np.uint64],  # (1, 2)
    ) -> None:
        self.stale = True  # whether parameters or normaliser are new since the last choice
        self.eyes = Eyes(*(np.zeros(encoding.inputs, np.float32) for _ in Eyes._fields))
        self.rng = as_rows(rng)
        self._head, self._action_space = head, action_space
        self._row_shape, self._row_dtype = raw_space(observation_space)
        self.allocate(1)

    def look_through(self, moments: RunningMoments) -> None:
        """Normalise observations so from now on."""
        self.eyes.centre[:], self.eyes.inverse_scale[:] = moments.mean, moments.inverse_deviation

    def take(self, observations: NDArray[Any], masks: NDArray[Any] | None) -> None:
        """Take in observations (rows, *shape) and what may be done."""
        if len(observations) != len(self.observation):
            self.allocate(len(observations))
        self.observation[...] = observations
        if masks is not None:
            if not self._head.masked or masks.shape != self.mask.shape:
                wanted = f"have shape {self.mask.shape}" if self._head.masked else "are not for this policy"
                raise ValueError(f"action masks of {len(observations)} observations {wanted}, got {masks.shape}")
            self.mask[...] = masks
        elif self._head.masked:
            self.mask[...] = 1

    def allocate(self, count: int) -> None:
        """Make rows for as many observations."""
        head, shape = self._head, self._action_space.shape or ()
        self.observation = np.zeros((count, *self._row_shape), self._row_dtype)
        self.mask = np.ones((count, head.outputs if head.masked else 1), np.int8)
        self.drawn = np.zeros((count, head.action_size), head.action_dtype)
        self.action = np.zeros((count, *shape), self._action_space.dtype)
        # As compiled functions reach them.
        action = self.action if self.action.ndim == 1 else as_rows(self.action)
        self.rows = as_rows(self.observation), as_rows(self.mask), as_rows(self.drawn), action
