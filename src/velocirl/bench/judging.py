"""Evaluation of claims: the value of each claim, and whether it reached its target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from velocirl.bench.comparison import Claim
from velocirl.bench.results import MET, MISSED, NO_TARGET, NOT_MEASURED, UNDECIDED, Finding, Measured
from velocirl.bench.statistics import NOISY_FROM, estimate, spread
from velocirl.bench.units import TIMES, Unit

STATEMENTS = {"value": "{of}", "ratio": "{of} / {to}", "difference": "{of} minus {to}"}


def judge(claim: Claim, contestants: Sequence[Measured], unit: Unit, *, busy: bool = False) -> Finding:
    """Evaluate a claim from the samples; on a busy machine the verdict is more cautious."""
    samples = {one.name: one.samples for one in contestants}
    statement = STATEMENTS[claim.by].format(of=claim.of, to=claim.to)
    at_most = claim.at_most is not None
    target = claim.at_most if at_most else claim.at_least
    shown = TIMES if claim.by == "ratio" else unit
    if not samples[claim.of] or (claim.to and not samples[claim.to]):
        return Finding(statement, shown, target, at_most, None, NOT_MEASURED)
    found = figures(claim, samples[claim.of], samples.get(claim.to, ()), unit)
    return Finding(statement, shown, target, at_most, estimate(found), _verdict(found, target, at_most, busy))


def figures(claim: Claim, of: Sequence[float], to: Sequence[float], unit: Unit) -> list[float]:
    """Compute a claim's value in every round: a slowdown of the whole machine cancels within a round."""
    ours, theirs = np.asarray(of, np.float64), np.asarray(to, np.float64)
    if claim.by == "value":
        return ours.tolist()
    if claim.by == "difference":
        return (ours - theirs).tolist()
    return (ours / theirs if unit.more_is_better else theirs / ours).tolist()


def _verdict(found: Sequence[float], target: float | None, at_most: bool, busy: bool) -> str:
    """Return the verdict: met or missed if the whole interval lies on that side of the target.

    Noisy samples can only meet a target, and only if every round does. The same holds on a busy machine, where a steady
    background load slows everything without adding noise.
    """
    if target is None:
        return NO_TARGET
    sign = -1.0 if at_most else 1.0
    better = estimate([sign * figure for figure in found])
    if busy or spread(found) > NOISY_FROM:
        return MET if min(sign * figure for figure in found) >= sign * target else UNDECIDED
    return MET if better.low >= sign * target else MISSED if better.high < sign * target else UNDECIDED
