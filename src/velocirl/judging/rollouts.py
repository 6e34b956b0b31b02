"""Rollouts of a policy in a one-step model learned from recorded data: states that the policy itself would reach.

The model is linear, plus the residual of a similar recorded transition; so it repeats the recorded plant where the data
is dense. Its stops are recorded stops. Far from every recorded transition it extrapolates: there a rollout has left the
data, and counts as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.judging.acting import as_rows
from velocirl.judging.numbers import Numbers, action_numbers, numbers_of
from velocirl.program.normalizing import is_constant
from velocirl.training.evaluation import Model

ROLLOUTS = 100
REFERENCES = 20_000  # transitions among which similar ones are searched
BLOCKS = 5  # of references: the nearest one of a random block provides the residual
SAMPLED = 1000  # recorded transitions that calibrate the distance
FAMILIAR = 0.99  # quantile of the data's own distances, beyond which a step is unfamiliar
BEYOND = 1.5  # times the distance of the farthest of these: one step beyond leaves the data
PULL = 0.2  # per step toward the recorded next state, for numbers the linear model cannot predict
COLLINEAR = 1e-4  # of the largest singular value: directions below it are rounding of signals that are sums of others
REPLAYED = 20  # recorded episodes by which the model is tested
FOLLOWS = 1.0  # standard deviations: root mean square error up to which the model follows a recording


@dataclass(frozen=True)
class Rollouts:
    """Rollouts of one policy from recorded initial states."""

    unfamiliar: NDArray[np.float64]  # (rollouts,) fraction of steps farther from the data than 99% of its own
    farthest: NDArray[np.float64]  # (rollouts,) distance from the data; 1 is the farthest recorded transition's
    stopped: NDArray[np.bool_]  # (rollouts,) ended by a recorded stop
    effective: float  # number of recorded episodes that carry the rollouts (Kish)
    follows: int  # steps for which the model stays within a standard deviation of recorded episodes, median
    horizon: int

    def left(self, limit: float) -> NDArray[np.bool_]:
        """Return which rollouts spend more than `limit` of their steps far from the data, or one far beyond it."""
        return (self.unfamiliar > limit) | (self.farthest > BEYOND)


class OneStepModel:
    """Model of the next observation, given an observation and an action, as numbers in standard deviations."""

    def __init__(self, data: Dataset, stops: NDArray[np.bool_], seed: int) -> None:
        space = data.info.observation_space
        if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"{space} is not a Box of floats: pass a policy of such observations")
        self._data, self._space, count = data, space, len(data)
        self._generator = np.random.default_rng(seed)
        self.episode = np.repeat(np.arange(data.episodes), data.lengths())
        here = np.arange(count) + self.episode
        seen = numbers_of(space, data.observations, count + data.episodes).astype(np.float64)
        self._mean, self._std = seen[here].mean(0), seen[here].std(0)
        self._std[is_constant(self._mean, self._std**2)] = 1.0
        self.seen = (seen - self._mean) / self._std
        done = action_numbers(data.info.action_space, data.actions, count).astype(np.float64)
        self._action_mean, self._action_std = done.mean(0), done.std(0)
        self._action_std[is_constant(self._action_mean, self._action_std**2)] = 1e-2  # half ranges: none was tried
        self.points = np.concatenate([self.seen[here], (done - self._action_mean) / self._action_std], axis=1)
        change = self.seen[here + 1] - self.seen[here]
        weights = np.linalg.lstsq(_with_one(self.points), change, rcond=COLLINEAR)[0]
        residuals = change - _with_one(self.points) @ weights
        self._weights = weights
        self._pull = PULL * np.clip(residuals.var(0) / np.maximum(change.var(0), 1e-12), 0.0, 1.0)
        self._refer(stops, residuals, self.seen[here + 1])

    def _refer(self, stops: NDArray[np.bool_], residuals: NDArray[Any], following: NDArray[Any]) -> None:
        """Choose the references: stops, initial transitions and a sample of all others, in random blocks."""
        generator, count = self._generator, len(self.points)
        kept = np.union1d(np.flatnonzero(stops)[: REFERENCES // 4], self._data.starts[:-1][: REFERENCES // 4])
        others = np.setdiff1d(np.arange(count), kept)
        room = min(REFERENCES - len(kept), len(others))
        rows = generator.permutation(np.concatenate([kept, generator.choice(others, room, replace=False)]))
        self._blocks = min(BLOCKS, len(rows))
        rows = rows[: len(rows) // self._blocks * self._blocks].astype(np.int64)
        points = self.points[rows]
        self._of, self._stops = self.episode[rows], stops[rows]
        self._residuals, self._following = residuals[rows], following[rows]
        lengths = (points**2).sum(1)
        self._table = np.ascontiguousarray(np.concatenate([-2.0 * points, lengths[:, None]], axis=1).T, np.float32)

    def nearest(
        self, points: NDArray[np.float64], without: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the distance to the nearest reference, and a near one at random; episodes `without` do not count."""
        count, blocks = len(points), self._blocks
        apart = _with_one(points).astype(np.float32) @ self._table
        if without is not None:
            apart[without[:, None] == self._of] = np.inf
        apart = apart.reshape(count, blocks, -1)
        best = apart.argmin(2)
        squares = np.take_along_axis(apart, best[:, :, None], 2)[:, :, 0].astype(np.float64)
        one = self._generator.integers(0, blocks, count)
        one = np.where(np.isfinite(squares[np.arange(count), one]), one, squares.argmin(1))
        chosen = one * apart.shape[2] + best[np.arange(count), one]
        return np.sqrt(np.maximum(squares.min(1) + (points**2).sum(1), 0.0)), chosen

    def follow(self, points: NDArray[np.float64], near: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the next observations, in standard deviations."""
        now = points[:, : len(self._mean)]
        after = now + _with_one(points) @ self._weights + self._residuals[near]
        after += self._pull * (self._following[near] - after)
        low, high = ((end.reshape(-1) - self._mean) / self._std for end in (self._space.low, self._space.high))
        return np.clip(after, low, high)

    def roll(self, model: Model, starts: NDArray[np.int64], horizon: int, *, deterministic: bool) -> Rollouts:
        """Let a policy act from recorded observations for `horizon` steps."""
        count, shape = len(starts), self._space.shape
        seen, on = self.seen[starts], np.ones(count, np.bool_)
        stopped, carried = np.zeros(count, np.bool_), np.zeros(self._data.episodes)
        far, farthest, steps, state = np.zeros(count), np.zeros(count), np.zeros(count), None
        own = self._own_distances()
        limit = float(np.quantile(own, FAMILIAR))
        for _ in range(horizon):
            values = (seen * self._std + self._mean).astype(self._space.dtype).reshape(count, *shape)
            more = {} if state is None else {"state": state, "episode_start": np.zeros(count, np.bool_)}
            actions, state = model.predict(values, deterministic=deterministic, **more)
            points = np.concatenate([seen, self._acted(actions, count)], axis=1)
            apart, near = self.nearest(points)
            steps += on
            far += on & (apart > limit)
            farthest = np.where(on, np.maximum(farthest, apart), farthest)
            np.add.at(carried, self._of[near[on]], 1.0)
            stopped |= on & self._stops[near]
            on &= ~stopped
            if not on.any():
                break
            seen = self.follow(points, near)
        effective = float(carried.sum() ** 2 / (carried**2).sum())
        farthest /= max(float(own.max()), 1e-9)
        return Rollouts(far / steps, farthest, stopped, effective, self._followed(horizon), horizon)

    def _acted(self, actions: Any, count: int) -> NDArray[np.float64]:
        space = self._data.info.action_space
        done: Numbers = action_numbers(space, as_rows(space, actions, count), count)
        return (done - self._action_mean) / self._action_std

    def _own_distances(self) -> NDArray[np.float64]:
        """Return the distances of recorded transitions from other episodes."""
        rows = self._generator.integers(0, len(self.points), min(SAMPLED, len(self.points)))
        without = self.episode[rows] if self._data.episodes > 1 else None
        found = [self.nearest(self.points[part], None if without is None else without[at]) for at, part in _parts(rows)]
        apart = np.concatenate([one for one, _ in found])
        return apart[np.isfinite(apart)] if np.isfinite(apart).any() else np.zeros(1)

    def _followed(self, horizon: int) -> int:
        """Replay recorded actions from recorded starts.

        Returns the median number of steps the model follows the data.
        """
        data, generator = self._data, self._generator
        if data.episodes == 1:
            return 0
        longest = np.argsort(-data.lengths(), kind="stable")[: max(data.episodes // 2, 1)]
        chosen = generator.choice(longest, min(REPLAYED, len(longest)), replace=False)
        first, lengths = data.starts[chosen], np.minimum(data.lengths()[chosen], horizon)
        seen, followed, on = self.seen[first + chosen], np.zeros(len(chosen), np.int64), np.ones(len(chosen), np.bool_)
        for step in range(int(lengths.max())):
            on &= step < lengths
            rows = first + np.minimum(step, lengths - 1)
            points = np.concatenate([seen, self.points[rows, seen.shape[1] :]], axis=1)
            seen = self.follow(points, self.nearest(points, chosen)[1])
            error = np.sqrt(((seen - self.seen[rows + chosen + 1]) ** 2).mean(1))
            on &= error <= FOLLOWS
            followed += on
            if not on.any():
                break
        return int(np.median(np.where(followed >= lengths, horizon, followed)))


def _parts(rows: NDArray[np.int64]) -> list[tuple[slice, NDArray[np.int64]]]:
    return [(slice(k, k + 100), rows[k : k + 100]) for k in range(0, len(rows), 100)]


def _with_one(points: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([points, np.ones((len(points), 1))], axis=1)
