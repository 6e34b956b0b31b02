"""Training of the fastest candidates and the reference, seed by seed, until it is clear which learn as well."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.choosing import WORSE, falls_far_behind, judge
from velocirl.bench.tuning.evidence import Goal, Measured, goal_of
from velocirl.bench.tuning.trials import Trial
from velocirl.bench.tuning.watching import Deadline, Watcher

FASTER_FROM = 0.7  # of the reference's best speed: slower candidates would have to learn much faster
MOST_CONTESTANTS = 12
FEWEST_TO_TELL = 2  # reference seeds before a candidate can count as far behind: a single seed may be lucky
LEARNING_SHARE = 0.6  # of the budget, at least; the time before is for measuring speed


@dataclass(frozen=True)
class Seeds:
    """Seeds of every candidate's trainings: `least` from `first` on, and up to `most` while time remains."""

    first: int
    least: int
    most: int


# Trains a candidate from scratch with a seed; once it reaches the given return, it is evaluated only at the end.
Train = Callable[[Candidate, int, float], Trial]


def contestants(rows: Sequence[Measured]) -> list[Measured]:
    """Return the candidates worth training: the fastest of each shape, unless far slower than the reference's best.

    Candidates that are faster than all nearer to the reference come first: they gain the most for their risk.
    """
    seen = [row for row in rows if row.rate > 0.0 and not row.failure]
    best: dict[str, Measured] = {}
    for row in sorted(seen, key=lambda row: -row.rate):
        best.setdefault(row.candidate.shape, row)
    bar = max(row.rate for row in seen if row.candidate.is_neutral)
    left = [row for row in best.values() if not row.candidate.is_reference and row.rate >= FASTER_FROM * bar]
    left.sort(key=lambda row: (row.candidate.distance, -row.rate))
    ordered: list[Measured] = []
    while left:
        fastest, layer = 0.0, []
        for row in left:
            if row.rate > fastest:
                fastest = row.rate
                layer.append(row)
        ordered += layer
        left = [row for row in left if row not in layer]
    return ordered[:MOST_CONTESTANTS]


def enough(seconds: float, seeds: Seeds) -> float:
    """Return a budget that suffices to train the reference and one other candidate; a training takes `seconds`."""
    return math.ceil(1.2 * 2 * seeds.least * seconds / LEARNING_SHARE)


def race(
    reference: Measured,
    others: Sequence[Measured],
    train: Train,
    seeds: Seeds,
    tolerance: float,
    deadline: Deadline,
    watcher: Watcher,
) -> tuple[Goal | None, str]:
    """Train the reference and the candidates; returns the goal and a message.

    The message gives the reason if there is no goal, or if some candidates were not trained.
    """
    course = _Course(reference, train, deadline, watcher, seeds)
    course.run(reference, 0)
    if course.cost * (2 * seeds.least - 1) > deadline.left:
        said = f"a training takes {course.cost:.3g} s with its evaluations, and {2 * seeds.least} are not in the budget"
        hint = f"--budget {enough(course.cost, seeds):.0f} would do, or fewer --steps"
        return None, f"{said}: only what cannot change learning was tuned ({hint})"
    active: list[Measured] = []
    for row in others:  # while time suffices for all their seeds
        if active and course.cost * (1 + (seeds.least - 1) * (len(active) + 2)) > deadline.left:
            break
        course.run(row, 0)
        active.append(row)
    missed = len(others) - len(active)
    for row in others[len(active) :]:
        row.skipped = "no time"
    said = f"{missed} of {len(others)} candidates were not trained: the budget (--budget)" if missed else ""
    shuffle = np.random.default_rng(0)
    for done in range(1, seeds.most + 1):
        goal = goal_of(reference, tolerance)
        if goal is None and done >= seeds.least:
            return None, f"the reference itself learns nothing that {done} seeds show: only speed was compared"
        if goal is not None:
            active = [row for row in active if _goes_on(row, reference, goal, enough=done >= seeds.least)]
        over = done >= seeds.least and deadline.left < course.cost * (len(active) + 1)
        if done == seeds.most or not active or over:
            break
        for place in shuffle.permutation(len(active) + 1).tolist():
            course.run([reference, *active][place], done)
    watcher.advance(1.0)
    return goal_of(reference, tolerance), said


class _Course:
    """Runner of trainings that tracks their cost."""

    def __init__(self, reference: Measured, train: Train, deadline: Deadline, watcher: Watcher, seeds: Seeds) -> None:
        self._reference, self._train, self._deadline, self._watcher = reference, train, deadline, watcher
        self._seeds = seeds
        self._spent, self._count = 0.0, 0

    @property
    def cost(self) -> float:
        """Mean seconds of a training, including its evaluations."""
        return self._spent / self._count

    def run(self, row: Measured, place: int) -> None:
        """Train a candidate with one of the seeds."""
        seed, finals = self._seeds.first + place, self._reference.finals
        share = max(place / self._seeds.most, min(self._deadline.share, (place + 1) / self._seeds.least))
        self._watcher.advance(share, f"{row.name}, seed {seed}")
        start = time.perf_counter()
        try:
            row.trials.append(self._train(row.candidate, seed, max(finals, default=math.inf)))
        except ArithmeticError as error:
            if row is self._reference:
                raise
            row.failure = f"seed {seed}: {error}"
        self._spent += time.perf_counter() - start
        self._count += 1


def _goes_on(row: Measured, reference: Measured, goal: Goal, *, enough: bool) -> bool:
    """Return whether further seeds could change a candidate's verdict; sets `failure` if it fell far behind."""
    if row.failure:
        return False
    if len(reference.trials) >= FEWEST_TO_TELL and not row.candidate.is_neutral:
        worst = min(row.trials, key=lambda trial: trial.final)
        if falls_far_behind(worst, reference, goal):
            row.failure = f"seed {worst.seed} fell far behind, with a return of {worst.final:.4g}"
            return False
    return not enough or judge(row, reference, goal).state != WORSE
