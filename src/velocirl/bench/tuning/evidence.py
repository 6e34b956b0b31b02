"""Measurements of candidates, and estimates from them: differences, ratios and times, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.statistics import CONFIDENCE, RESAMPLES, Estimate, estimate
from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.trials import Trial


@dataclass
class Measured:
    """A candidate and its measurements."""

    candidate: Candidate
    glance: float | None = None  # steps per second, from the quick pass
    speeds: list[float] = field(default_factory=list)  # steps per second, measured in turns with other candidates
    trials: list[Trial] = field(default_factory=list)
    failure: str = ""  # reason if training failed
    skipped: str = ""  # reason if it was not trained

    @property
    def name(self) -> str:
        """Name of the candidate."""
        return self.candidate.name

    @property
    def speed(self) -> Estimate | None:
        """Steps per second."""
        if self.speeds:
            return estimate(self.speeds)
        return None if self.glance is None else Estimate(self.glance, self.glance, self.glance)

    @property
    def rate(self) -> float:
        """Steps per second by the best measurement so far; 0 without one."""
        return 0.0 if self.speed is None else self.speed.median

    @property
    def finals(self) -> list[float]:
        """Mean return at the end of each training."""
        return [trial.final for trial in self.trials]


@dataclass(frozen=True)
class Goal:
    """Standard for learning as well as the reference."""

    untrained: float  # mean return before training
    reached: float  # the reference's mean return after training
    tolerance: float  # allowed deficit in return

    @property
    def gain(self) -> float:
        """Improvement of the reference in training."""
        return self.reached - self.untrained

    @property
    def quality(self) -> float:
        """Return that must be reached."""
        return self.reached - self.tolerance


def goal_of(reference: Measured, tolerance: float) -> Goal | None:
    """Return the goal set by the reference; None if its returns do not clearly exceed an untrained agent's.

    `tolerance` is a fraction of the reference's gain.
    """
    finals, untrained = reference.finals, [trial.untrained for trial in reference.trials]
    if not finals or not np.isfinite(finals).all():
        return None
    floor = [value for value in untrained if math.isfinite(value)] or [min(finals) - 1.0]
    gained = difference(finals, floor)
    if not gained.low > 0.0:
        return None
    start, end = float(np.mean(floor)), float(np.mean(finals))
    return Goal(start, end, tolerance * (end - start))


def expected_steps(trials: Sequence[Trial], quality: float) -> float | None:
    """Return the expected steps to a quality if failed trainings are restarted; None if no training reached it.

    The sum of all steps divided by the number of successes: the expected running time of the COCO benchmarks.
    """
    spent, reached = _efforts(trials, quality)
    return float(spent.sum() / reached.sum()) if reached.any() else None


def expected_seconds(row: Measured, quality: float) -> float | None:
    """Return the expected seconds to a quality: the expected steps at the speed measured in turns.

    Steps do not depend on the machine's load, and speed has many samples. An interruption therefore has little effect.
    """
    steps = expected_steps(row.trials, quality)
    return None if steps is None or row.rate == 0.0 else steps / row.rate


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return the difference of two means with its bootstrap interval."""
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    draws = _draws(one, 0).mean(axis=1) - _draws(other, 1).mean(axis=1)
    return _interval(float(one.mean() - other.mean()), draws)


def sooner(row: Measured, reference: Measured, quality: float) -> Estimate | None:
    """Return a candidate's speedup over the reference in time to a quality; None if one of them never reaches it."""
    rates = _speed_ratios(row, reference)
    (spent, reached), (others_spent, others_reached) = (_efforts(one.trials, quality) for one in (row, reference))
    if rates is None or not reached.any() or not others_reached.any():
        return None
    rng = np.random.default_rng(0)
    own, others, rounds = (rng.integers(0, len(one), (RESAMPLES, len(one))) for one in (spent, others_spent, rates))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = spent[own].sum(axis=1) / reached[own].sum(axis=1)
        others_steps = others_spent[others].sum(axis=1) / others_reached[others].sum(axis=1)
        fewer = np.nan_to_num(others_steps / steps, nan=1.0, posinf=1e9)  # NaN: neither reached it
    middle = (others_spent.sum() / others_reached.sum()) / (spent.sum() / reached.sum())
    return _interval(float(middle * np.median(rates)), fewer * np.median(rates[rounds], axis=1))


def speed_ratio(row: Measured, reference: Measured) -> Estimate | None:
    """Return the ratio of steps per second to the reference's, from samples of the same rounds."""
    rates = _speed_ratios(row, reference)
    return None if rates is None else estimate(rates.tolist())


def _speed_ratios(row: Measured, reference: Measured) -> NDArray[np.float64] | None:
    rounds = min(len(row.speeds), len(reference.speeds))  # an interrupt may have cut a round short
    return np.divide(row.speeds[:rounds], reference.speeds[:rounds]) if rounds else None


def _efforts(trials: Sequence[Trial], quality: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each training's steps to the quality, or to its end, and whether it reached the quality."""
    found = [trial.steps_to(quality) for trial in trials]
    spent = [trial.steps[-1] if at is None else at for trial, at in zip(trials, found, strict=True)]
    return np.array(spent, np.float64), np.array([at is not None for at in found], np.bool_)


def _draws(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    return values[np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))]


def _interval(middle: float, draws: NDArray[np.float64]) -> Estimate:
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(draws, (tail, 100.0 - tail))
    return Estimate(middle, float(low), float(high))
