"""What was measured of candidates, and what that says: differences, ratios and times, each with its interval."""

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
    """A candidate and all that was measured of it."""

    candidate: Candidate
    glance: float | None = None  # steps per second, from a short look
    speeds: list[float] = field(default_factory=list)  # steps per second, in turns with others
    trials: list[Trial] = field(default_factory=list)
    failure: str = ""  # why it cannot be trained, where it cannot
    skipped: str = ""  # why it was not trained, where it was not

    @property
    def name(self) -> str:
        """That of the candidate."""
        return self.candidate.name

    @property
    def speed(self) -> Estimate | None:
        """Steps per second."""
        if self.speeds:
            return estimate(self.speeds)
        return None if self.glance is None else Estimate(self.glance, self.glance, self.glance)

    @property
    def rate(self) -> float:
        """Steps per second as well as they are known; 0 where they are not."""
        return 0.0 if self.speed is None else self.speed.median

    @property
    def finals(self) -> list[float]:
        """The mean return at the end of each training."""
        return [trial.final for trial in self.trials]


@dataclass(frozen=True)
class Goal:
    """What counts as learning as well as the reference."""

    untrained: float  # the mean return before any training
    reached: float  # the reference's, after it
    tolerance: float  # by how much a return may be lower

    @property
    def gain(self) -> float:
        """What the reference learnt."""
        return self.reached - self.untrained

    @property
    def quality(self) -> float:
        """The return that has to be reached."""
        return self.reached - self.tolerance


def goal_of(reference: Measured, tolerance: float) -> Goal | None:
    """What the reference reaches; None where it cannot be told from an agent that has learnt nothing.

    `tolerance` is a share of what it learns.
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
    """The steps until a quality is reached, if one begins anew where a training ends without; None: it never was.

    All steps over the number of successes, as the COCO benchmarks count expected running time.
    """
    spent, reached = _efforts(trials, quality)
    return float(spent.sum() / reached.sum()) if reached.any() else None


def expected_seconds(row: Measured, quality: float) -> float | None:
    """The seconds until a quality is reached: the steps that takes, at the speed that was measured in turns.

    Steps are the same whatever else the machine does, and speed has many samples: so an interruption counts little.
    """
    steps = expected_steps(row.trials, quality)
    return None if steps is None or row.rate == 0.0 else steps / row.rate


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The difference of two means with its bootstrap interval."""
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    draws = _draws(one, 0).mean(axis=1) - _draws(other, 1).mean(axis=1)
    return _interval(float(one.mean() - other.mean()), draws)


def sooner(row: Measured, reference: Measured, quality: float) -> Estimate | None:
    """How many times as soon as the reference a candidate is at a quality; None where one of them never is."""
    rates = _speed_ratios(row, reference)
    (spent, reached), (others_spent, others_reached) = (_efforts(one.trials, quality) for one in (row, reference))
    if rates is None or not reached.any() or not others_reached.any():
        return None
    rng = np.random.default_rng(0)
    own, others, rounds = (rng.integers(0, len(one), (RESAMPLES, len(one))) for one in (spent, others_spent, rates))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = spent[own].sum(axis=1) / reached[own].sum(axis=1)
        others_steps = others_spent[others].sum(axis=1) / others_reached[others].sum(axis=1)
        fewer = np.nan_to_num(others_steps / steps, nan=1.0, posinf=1e9)  # neither was there: nothing is said
    middle = (others_spent.sum() / others_reached.sum()) / (spent.sum() / reached.sum())
    return _interval(float(middle * np.median(rates)), fewer * np.median(rates[rounds], axis=1))


def speed_ratio(row: Measured, reference: Measured) -> Estimate | None:
    """How many times as many steps per second, from samples taken in the same rounds."""
    rates = _speed_ratios(row, reference)
    return None if rates is None else estimate(rates.tolist())


def _speed_ratios(row: Measured, reference: Measured) -> NDArray[np.float64] | None:
    rounds = min(len(row.speeds), len(reference.speeds))  # an interrupt may have come within one
    return np.divide(row.speeds[:rounds], reference.speeds[:rounds]) if rounds else None


def _efforts(trials: Sequence[Trial], quality: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The steps of each training until the quality or until its end, and which of the two it was."""
    found = [trial.steps_to(quality) for trial in trials]
    spent = [trial.steps[-1] if at is None else at for trial, at in zip(trials, found, strict=True)]
    return np.array(spent, np.float64), np.array([at is not None for at in found], np.bool_)


def _draws(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    return values[np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))]


def _interval(middle: float, draws: NDArray[np.float64]) -> Estimate:
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(draws, (tail, 100.0 - tail))
    return Estimate(middle, float(low), float(high))
