"""How ours stand to those of others: the pairs that a benchmark compares, as ratios above 1 where ours are better."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.bench.comparison import ratio
from velocirl.bench.judging import figures
from velocirl.bench.results import Measured, Result
from velocirl.bench.statistics import Estimate, estimate

MOST = 1e150  # of larger figures, and of ones over them, a ratio may be more than a number can be


@dataclass(frozen=True)
class Rivalry:
    """One of ours beside one of somebody else's."""

    benchmark: str
    ours: str
    theirs: str
    ratio: Estimate


def times_as_good(result: Result, of: Measured, to: Measured) -> Estimate | None:
    """How many times as good one contestant is as another, taken in every round; of positive figures only."""
    sane = all(1.0 / MOST < sample < MOST for sample in (*of.samples, *to.samples))
    if not of.samples or len(of.samples) != len(to.samples) or not sane:
        return None
    return estimate(figures(ratio(of.name, to.name), of.samples, to.samples, result.unit))


def rivalries(result: Result) -> list[Rivalry]:
    """The pairs whose ratio is claimed; a peer that no claim names stands beside the first of ours."""
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
