"""Choice of a candidate: the soonest to reach the quality among those that learn no worse than the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from velocirl.bench.statistics import Estimate
from velocirl.bench.tuning.evidence import Goal, Measured, difference, expected_seconds, sooner, speed_ratio
from velocirl.bench.tuning.trials import Trial

ACCEPTED, WORSE, UNCLEAR, UNTRIED, IS_REFERENCE = "accepted", "worse", "unclear", "not trained", "reference"
SAME, AS_WELL = "learns the same by design", "learns as well"
FAR = 0.5  # of the reference's gain: a candidate that far below the reference's worst seed gets no further seeds


@dataclass(frozen=True)
class Verdict:
    """Verdict on one candidate."""

    state: str
    reason: str
    difference: Estimate | None = None  # its return minus the reference's
    seconds: float | None = None  # expected time to the quality
    gain: Estimate | None = None  # speedup over the reference in time to the quality


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, with the reason and all verdicts."""

    name: str
    reason: str
    verdicts: dict[str, Verdict]


def choose(rows: Sequence[Measured], goal: Goal | None) -> Choice:
    """Judge every candidate and choose the soonest at the quality, by the lower bound of its speedup.

    Without a goal, only candidates that cannot affect learning are eligible, and their speed decides. Ties go to the
    candidate nearest to the reference.
    """
    reference = next(row for row in rows if row.candidate.is_reference)
    verdicts = {row.name: judge(row, reference, goal) for row in rows}
    better = []
    for row in rows:
        verdict = verdicts[row.name]
        if verdict.state == ACCEPTED and verdict.gain is not None and verdict.gain.low > 1.0:
            better.append((-verdict.gain.low, row.candidate.distance, row.name))
    if better:
        name = min(better)[2]
        return Choice(name, verdicts[name].reason, verdicts)
    accepted = any(verdict.state == ACCEPTED for verdict in verdicts.values())
    why = "no candidate was faster beyond noise" if accepted else "no candidate learnt as well"
    unclear = sum(verdict.state == UNCLEAR for verdict in verdicts.values())
    if unclear:
        why = f"{why} for certain; {unclear} are unclear, and more --seeds and --budget may tell"
    if not any(row.trials or row.speeds for row in rows if row is not reference):
        why = "there was no candidate that could have been faster"
    return Choice(reference.name, why, verdicts)


def judge(row: Measured, reference: Measured, goal: Goal | None) -> Verdict:
    """Return the verdict on one candidate."""
    if row.failure:
        return Verdict(WORSE, row.failure)
    seconds = None if goal is None else expected_seconds(row, goal.quality)
    if row is reference:
        return Verdict(IS_REFERENCE, "", seconds=seconds)
    faster = speed_ratio(row, reference)
    if goal is None or not row.trials:
        if not row.candidate.is_neutral or faster is None:
            return Verdict(UNTRIED, row.skipped, gain=faster)
        return Verdict(ACCEPTED, _said(SAME, faster), gain=faster)
    if not np.isfinite(row.finals).all():
        return Verdict(WORSE, "its episodes do not end")
    found = difference(row.finals, reference.finals)
    neutral = row.candidate.is_neutral
    if found.high < -goal.tolerance:
        return Verdict(WORSE, f"return lower by {-found.median:.4g}", found, seconds)
    if found.low < -goal.tolerance and not neutral:
        reason = f"return {found.low:+.4g} to {found.high:+.4g}: too few seeds to tell"
        return Verdict(UNCLEAR, reason, found, seconds)
    if seconds is None:
        return Verdict(UNCLEAR, "no seed reached the quality", found)
    gain = faster if neutral else sooner(row, reference, goal.quality)
    return Verdict(ACCEPTED, _said(SAME if neutral else AS_WELL, gain), found, seconds, gain)


def falls_far_behind(trial: Trial, reference: Measured, goal: Goal) -> bool:
    """Return whether one training is so bad that further seeds could not compensate for it."""
    return trial.final < min(reference.finals) - FAR * goal.gain


def _said(learns: str, gain: Estimate | None) -> str:
    """Describe how a candidate learns and, if it is not faster, why it is not chosen."""
    if gain is None or gain.low > 1.0:
        return learns
    return f"{learns}, but slower" if gain.high < 1.0 else f"{learns}, not faster beyond noise"
