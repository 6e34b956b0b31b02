"""Ratios to peer libraries: the pairs that a benchmark compares, above 1 if velocirl is better."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.bench.comparison import ratio
from velocirl.bench.judging import figures
from velocirl.bench.results import Measured, Result
from velocirl.bench.statistics import Estimate, estimate

MOST = 1e150  # ratios of larger values, or of values below its inverse, may overflow


@dataclass(frozen=True)
class Rivalry:
    """Pair of an own and a third-party implementation."""

    benchmark: str
    ours: str
    theirs: str
    ratio: Estimate


def times_as_good(result: Result, of: Measured, to: Measured) -> Estimate | None:
    """Compute how many times as good `of` is as `to`, in every round; None unless all values are positive."""
    sane = all(1.0 / MOST < sample < MOST for sample in (*of.samples, *to.samples))
    if not of.samples or len(of.samples) != len(to.samples) or not sane:
        return None
    return estimate(figures(ratio(of.name, to.name), of.samples, to.samples, result.unit))


def rivalries(result: Result) -> list[Rivalry]:
    """Return the pairs with a claimed ratio; a peer without a claim is paired with our first implementation."""
    ours = [one for one in result.contestants if not one.peer and one.samples]
    peers = [one for one in result.contestants if one.peer and one.samples]
    claimed = {finding.statement for finding in result.findings}
    found = []
    for peer in peers:
        pairs = [one for one in ours if f"{one.name} / {peer.name}" in claimed] or ours[:1]
        for one in pairs:
            times = times_as_good(result, one, peer)
            if times is not None:
                found.append(Rivalry(result.name, one.name, peer.name, times))
    return found
