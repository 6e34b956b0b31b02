"""Comparison with a baseline: changes in speed or size beyond noise.

A change is judged by the raw samples of both runs. The fastest ones count: other programs on a machine only ever slow
something down. Every round also times a fixed reference workload (see `reference`). Values are expressed in units of
that workload: the machine's speed cancels from one run to another. Rounds that other programs disturbed do not count
(see `quiet`). Their remaining influence is separated by CPU time, which they do not change. Code that took longer by
wall-clock time but not by CPU time waited; unless the machine was otherwise idle, it may have waited for them. If they
used too much of the processors in either run, or much more in the slower run, no change is reported. All of this holds
in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.machine.company import ALONE, NOTABLE, TOO_MUCH
from velocirl.bench.quiet import FEWEST, measurements, quiet, too_busy
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.statistics import CONFIDENCE, RESAMPLES, Estimate, spread
from velocirl.bench.units import Unit

Severity = Literal["none", "improved", "warning", "failure", "inconclusive"]
SURE = 0.75  # fraction of sample pairs (one per run) whose later sample must be worse: a large effect
FASTEST = 0.15  # fraction of a run's samples that makes up its value
FASTER = 0.5  # fraction of a run's samples that is compared one by one


@dataclass(frozen=True)
class Thresholds:
    """Thresholds above which a change is a warning or a failure, as fractions of the value before."""

    warn: float = 0.05
    fail: float = 0.10
    memory: float = 0.20

    def __post_init__(self) -> None:
        if not 0.0 < self.warn <= self.fail < 1.0:
            raise ValueError(
                f"a warning comes before a failure, both between 0% and 100%, got {self.warn} and {self.fail}"
            )
        if not self.memory > 0.0:
            raise ValueError(f"memory must be allowed to grow by more than 0%, got {self.memory}")


@dataclass(frozen=True)
class Change:
    """Change of one value since the baseline."""

    benchmark: str
    contestant: str
    unit: Unit
    before: Estimate | None
    after: Estimate | None
    ratio: Estimate  # of goodness: below 1 is worse
    severity: Severity
    by: Literal["figures", "peers"]
    reason: str = ""

    @property
    def worse(self) -> bool:
        """True for a regression."""
        return self.severity in ("warning", "failure")


@dataclass(frozen=True)
class Compared:
    """Run compared with a baseline."""

    changes: Sequence[Change]
    other_machine: bool  # the baseline is from another machine: only ratios to peers are compared
    missing: Sequence[str] = ()  # the baseline's benchmarks that were selected but not measured
    new: Sequence[str] = ()

    @property
    def regressions(self) -> list[Change]:
        """Changes for the worse."""
        return [change for change in self.changes if change.worse]

    @property
    def failed(self) -> bool:
        """True if a value became worse by more than the failure threshold."""
        return any(change.severity == "failure" for change in self.changes)


def compare(before: Report, after: Report, thresholds: Thresholds) -> Compared:
    """Compare every value of velocirl's own implementations in both runs."""
    other_machine = before.machine.identity != after.machine.identity
    earlier = {result.name: result for result in before.results}
    changes: list[Change] = []
    for result in after.results:
        base = earlier.get(result.name)
        if base is not None and base.unit == result.unit:
            changes += _peer_changes(base, result, thresholds) if other_machine else _changes(base, result, thresholds)
    return Compared(
        changes,
        other_machine,
        missing=[name for name in earlier if name not in {result.name for result in after.results if not result.error}],
        new=[result.name for result in after.results if result.name not in earlier],
    )


def _changes(base: Result, result: Result, thresholds: Thresholds) -> list[Change]:
    """Compare values measured on the same machine."""
    names = [name for name, *_ in _pairs(base, result)]
    return [_called(base, result, partial(_figures_change, name, thresholds), thresholds) for name in names]


def _peer_changes(base: Result, result: Result, thresholds: Thresholds) -> list[Change]:
    """Compare ratios to peers between different machines."""
    peers = [peer for peer, *_ in _pairs(base, result, peers=True)]
    names = [(name, peer) for name, *_ in _pairs(base, result) for peer in peers]
    return [_called(base, result, partial(_peer_change, *pair, thresholds), thresholds) for pair in names]


def _called(
    base: Result, result: Result, change_of: Callable[[Result, Result], Change], thresholds: Thresholds
) -> Change:
    """Compare a value by the quiet rounds of both runs; inconclusive if they do not decide."""
    first, second = quiet(base), quiet(result)
    change = _guarded(change_of(first, second), first.company, second.company)
    if change.severity != "improved":
        return change
    # A regression must show even in the best of all measurements; an improvement must show even in the worst.
    parts = [change_of(first, part) for part in map(quiet, measurements(result)) if not too_busy(part)]
    shown = sum(part.ratio.median >= 1.0 / (1.0 - thresholds.warn) for part in parts)
    if shown < len(parts):
        return replace(change, severity="inconclusive", reason=f"in {shown} of {len(parts)} measurements only")
    return change


def _figures_change(name: str, thresholds: Thresholds, base: Result, result: Result) -> Change:
    """Compare by wall-clock time and, if that changed and both are known, by CPU time."""
    before, after = _one(base, name), _one(result, name)
    samples = _goodness(base, before.samples, base.reference), _goodness(result, after.samples, result.reference)
    change = _change(result, name, before, after, samples, thresholds, "figures")
    if change.severity == "none" or not before.by_processor or not after.by_processor:
        return change
    samples = (
        _goodness(base, before.by_processor, base.reference_by_processor),
        _goodness(result, after.by_processor, result.reference_by_processor),
    )
    by_processor = _change(result, name, before, after, samples, thresholds, "figures")
    return _weighed(change, by_processor, alone=max(base.company, result.company) < ALONE)


def _peer_change(name: str, peer: str, thresholds: Thresholds, base: Result, result: Result) -> Change:
    """Compare the ratios to a peer in each round."""
    before, after = _one(base, name), _one(result, name)
    samples = _ratio(before, _one(base, peer), base.unit), _ratio(after, _one(result, peer), base.unit)
    return _change(result, f"{name} / {peer}", before, after, samples, thresholds, "peers")


def _weighed(by_clock: Change, by_processor: Change, *, alone: bool) -> Change:
    """Return the smaller of the two changes; on an otherwise idle machine, the change by wall-clock time."""
    if by_clock.severity == "inconclusive":
        return replace(by_clock, reason=f"by the clock: {by_clock.reason}")
    if by_processor.worse and by_clock.worse:
        return max(by_clock, by_processor, key=lambda change: change.ratio.median)
    if by_processor.severity == by_clock.severity == "improved":
        return min(by_clock, by_processor, key=lambda change: change.ratio.median)
    if alone:
        waits = "longer" if by_clock.worse else "less"
        return replace(by_clock, reason=f"{by_clock.reason}; not in the processor's time, so it waits {waits}")
    reason = (
        f"the processor's time changed by {by_processor.ratio.median - 1.0:+.1%} only: others may have been at work"
    )
    return replace(by_clock, severity="inconclusive", reason=reason)


def _guarded(change: Change, before: float, after: float) -> Change:
    """Mark a change inconclusive if other programs kept too many cores busy.

    `before` is the number of busy cores in the baseline, `after` the number in this run.
    """
    if not change.unit.is_speed:
        return change
    reason = ""
    slower, faster = (after, before) if change.worse else (before, after)
    if before > TOO_MUCH:  # it may hide slowdowns, too
        reason = f"other programs kept {before:.1f} cores busy while the baseline was taken: save it again"
    elif change.severity in ("none", "inconclusive"):
        return change
    elif after > TOO_MUCH:
        reason = f"other programs kept {after:.1f} cores busy: too many to conclude from"
    elif slower > NOTABLE and slower - faster > NOTABLE:
        reason = f"other programs kept {slower:.1f} cores busy during the slower one, {faster:.1f} during the faster"
    return replace(change, severity="inconclusive", reason=reason) if reason else change


def _pairs(base: Result, result: Result, *, peers: bool = False) -> list[tuple[str, Measured, Measured]]:
    earlier = {one.name: one for one in base.contestants}
    both = [(one.name, earlier[one.name], one) for one in result.contestants if one.name in earlier]
    return [pair for pair in both if pair[2].peer == peers and pair[1].samples and pair[2].samples]


def _one(result: Result, name: str) -> Measured:
    return next(one for one in result.contestants if one.name == name)


def _goodness(result: Result, samples: Sequence[float], reference: Sequence[float]) -> NDArray[np.float64]:
    """Return samples such that more is better: speeds in units of the reference workload."""
    figures = np.asarray(samples, np.float64)
    good = figures if result.unit.more_is_better else 1.0 / np.maximum(figures, 1e-300)
    if not result.unit.is_speed or not reference:
        return good
    # Use the whole run, not each round: so short a workload is disturbed more than the code measured with it.
    return good / _fastest(1.0 / np.asarray(reference, np.float64)[None])


def _ratio(ours: Measured, peer: Measured, unit: Unit) -> NDArray[np.float64]:
    rounds = min(len(ours.samples), len(peer.samples))
    ratio = np.asarray(ours.samples[:rounds]) / np.asarray(peer.samples[:rounds])
    return ratio if unit.more_is_better else 1.0 / ratio


def _change(
    result: Result,
    name: str,
    before: Measured,
    after: Measured,
    samples: tuple[NDArray[np.float64], NDArray[np.float64]],
    thresholds: Thresholds,
    by: Literal["figures", "peers"],
) -> Change:
    found = ratio_of(*samples)
    severity, reason = judge_change(found, *samples, result.unit, thresholds)
    return Change(result.name, name, result.unit, before.estimate, after.estimate, found, severity, by, reason)


def ratio_of(before: NDArray[np.float64], after: NDArray[np.float64]) -> Estimate:
    """Compute how many times as good the later samples are, with a bootstrap interval."""
    generator = np.random.default_rng(0)

    def resampled(samples: NDArray[np.float64]) -> NDArray[np.float64]:
        return samples[generator.integers(0, len(samples), (RESAMPLES, len(samples)))]

    ratios = _fastest(resampled(after)) / _fastest(resampled(before))
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(ratios, (tail, 100.0 - tail))
    return Estimate(float(_fastest(after[None])[0] / _fastest(before[None])[0]), float(low), float(high))


def _fastest(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the mean of the best `FASTEST` fraction of each row."""
    count = max(1, round(FASTEST * samples.shape[1]))
    return np.sort(samples, axis=1)[:, -count:].mean(axis=1)


def worse_share(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Compute the fraction of pairs whose later sample is worse, ties counted half: an effect size."""
    difference = after[:, None] - before[None]
    return float(((difference < 0) + 0.5 * (difference == 0)).mean())


def _faster(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sort(samples)[-max(1, round(FASTER * len(samples))) :]


def judge_change(
    ratio: Estimate,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    unit: Unit,
    thresholds: Thresholds,
) -> tuple[Severity, str]:
    """Classify a change; returns its severity and the reason for it."""
    if min(len(before), len(after)) < FEWEST:
        return "inconclusive", f"fewer than {FEWEST} samples"
    warn, fail = thresholds.warn, thresholds.fail
    if unit.is_memory:  # growth by a fifth means five sixths as good
        warn = fail = 1.0 - 1.0 / (1.0 + thresholds.memory)
    share = worse_share(_faster(before), _faster(after))
    if ratio.median <= 1.0 - warn:
        sure = ratio.high < 1.0 and share >= SURE
        if not sure:
            noise = max(spread(before.tolist()), spread(after.tolist()))
            return "inconclusive", f"{share:.0%} of the faster samples are worse, and the spread is {noise:.0%}"
        return ("failure" if ratio.median <= 1.0 - fail else "warning"), f"{share:.0%} of the faster samples are worse"
    if ratio.median >= 1.0 / (1.0 - warn) and ratio.low > 1.0 and share <= 1.0 - SURE:
        return "improved", f"{1.0 - share:.0%} of the faster samples are better"
    return "none", ""
