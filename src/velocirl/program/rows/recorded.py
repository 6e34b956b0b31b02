"""Recorded data as learners read it: observations encoded and normalized, actions as policies write them.

A record is a replay buffer's (`buffers.records.transition_type`), so that data can fill a replay buffer or serve as
one. A step's next observation is in its own record. Discounts end at termination, not at truncation, and no pair of
observations crosses an episode boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.engine.naming import nearest
from velocirl.networks.encoding import Encoding
from velocirl.networks.observations import raw_space, write_raw
from velocirl.program.fields import COSTS, HAS_NEXT, NEXT_ACTION
from velocirl.program.normalizing import RunningMoments
from velocirl.program.rows.commands import action_rows


class Recorded:
    """Dataset as one agent reads it."""

    def __init__(
        self,
        load: Callable[[], Any],  # loads the dataset, on first use
        observation_space: Space[Any],
        action_space: Space[Any],
        encoding: Encoding,
        moments: RunningMoments,
        constraints: tuple[str, ...],
    ) -> None:
        self._load, self._encoding, self._moments, self._constraints = load, encoding, moments, constraints
        self._observation_space, self._action_space = observation_space, action_space

    @property
    def data(self) -> Any:
        """The dataset."""
        return self._load()

    def __len__(self) -> int:
        return len(self.data)

    def measure(self) -> None:
        """Compute the moments that normalize observations; each observation counts once, at its own step."""
        table, moments = self._encoding.table, self._moments
        moments.state[:] = 0.0
        for part in self.data.transitions():
            raw = self._raw(part.observations)
            sums, squares = np.zeros((2, self._encoding.inputs))
            first = not moments.state[0].any()
            for field in table[table["normalised"] == 1]:
                numbers = raw[:, field["raw"] : field["raw"] + field["width"]].astype(np.float64)
                into = slice(field["start"], field["start"] + field["width"])
                # Relative to the current mean: squares keep their digits when values are far from 0, and constant
                # values have a standard deviation of exactly 0.
                moments.state[1, into] = numbers[0] if first else moments.mean[into]
                numbers -= moments.mean[into]
                sums[into], squares[into] = numbers.sum(0), (numbers * numbers).sum(0)
            _add(moments, sums, squares, len(raw))

    def fill(self, kind: np.dtype[Any], group: int, *, apart: bool) -> NDArray[Any]:
        """Return records for a replay buffer with steps of `group` records, without the first that fill no step.

        A replay buffer looks for a step's successor one group further on, where data has another step. With `apart`,
        records are therefore marked as truncated, so that each stands alone.
        """
        rows = np.zeros(len(self), kind)
        self.write(rows)
        if apart:
            rows["ended"][rows["ended"] == GOES_ON] = TRUNCATED
        return rows[len(rows) % group :]

    def write(self, rows: NDArray[Any], first: int = 0) -> None:
        """Write the records of transitions from index `first` on, one for each of `rows`, in the order of the data.

        Data has no action masks, so all actions are legal.
        """
        written = 0
        for part in self.data.transitions(first=first, stop=first + len(rows)):
            into = rows[written : written + len(part.rewards)]
            into["reward"] = part.rewards
            into["action"] = self.actions(part.actions)
            into["ended"] = np.where(part.terminations, TERMINATED, np.where(part.truncations, TRUNCATED, GOES_ON))
            self.encode(part.observations, into["observation"])
            self.encode(part.next_observations, into["next_observation"])
            names = into.dtype.names or ()
            if COSTS in names:
                into[COSTS] = part.costs[:, self._costs]
            if NEXT_ACTION in names:
                into[HAS_NEXT] = part.has_next
                into[NEXT_ACTION] = np.where(part.has_next[:, None], self.actions(part.next_actions), 0)
            written += len(part.rewards)

    def encode(self, observations: Any, into: NDArray[np.float32]) -> None:
        """Write the network inputs of observations into `into`."""
        affine = self._encoding.affine(self._moments.mean, self._moments.inverse_deviation)
        self._encoding.encode_rows(self._raw(observations), affine, into)

    def actions(self, given: NDArray[Any]) -> NDArray[Any]:
        """Return actions (rows, numbers) as a policy writes them: numbers within [-1, 1], choices from 0 on."""
        return action_rows(self._action_space, given)

    @property
    def _costs(self) -> list[int]:
        """Columns of the agent's constraints in the data."""
        known = list(self.data.info.constraints)
        for name in self._constraints:
            if name not in known:
                raise ValueError(f"the data has no costs of the constraint {name!r}{nearest(name, known)}")
        return [known.index(name) for name in self._constraints]

    def _raw(self, observations: Any) -> NDArray[Any]:
        shape, dtype = raw_space(self._observation_space)
        first = observations
        while isinstance(first, (dict, tuple)):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        raw = np.empty((len(first), *shape), dtype)
        write_raw(self._observation_space, observations, raw)
        return raw.reshape(len(raw), -1)


def _add(moments: RunningMoments, sums: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> None:
    """Add a batch given as sums of differences from the current mean."""
    mean = moments.mean.copy()
    moments.state[1] -= mean
    moments.add(sums, squares, count)
    moments.state[1] += mean
