"""Quiet rounds: those that other programs hardly disturbed, by which two runs are compared.

What others do misleads in either direction: compared with a baseline that was taken next to a busy process, the same
code has become faster, and slower code is as before. So each round knows how many cores others kept busy while it was
taken, and rounds that were disturbed count only where there are no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from velocirl.bench.machine.company import NOTABLE, TOO_MUCH
from velocirl.bench.results import Report, Result

FEWEST = 3  # rounds from which something is concluded


def quiet(result: Result) -> Result:
    """Return the result with its quiet rounds only, and the company that was left in them.

    Rounds count where others kept fewer than 0.25 cores busy; where these are less than half of the rounds, below 0.75;
    and where these are too few as well, all of them, whose company then says that nothing can be concluded.
    """
    count = rounds_of(result)
    cores = result.company_by_round or (result.company,) * count
    if not count or not result.unit.is_speed:
        return result
    notable, bearable = ([place for place in range(count) if cores[place] <= most] for most in (NOTABLE, TOO_MUCH))
    enough = len(notable) >= max(FEWEST, count / 2)
    chosen = notable if enough else bearable if len(bearable) >= FEWEST else range(count)
    return replace(_only(result, chosen), company=fmean(cores[place] for place in chosen))


def too_busy(result: Result) -> bool:
    """Return whether other programs kept too many cores busy in nearly every round: nothing can be concluded."""
    return result.unit.is_speed and quiet(result).company > TOO_MUCH


def disturbed(report: Report) -> list[str]:
    """Return a warning, where a run was disturbed too much to be a baseline for some of its benchmarks."""
    names = [result.name for result in report.results if too_busy(result)]
    if not names:
        return []
    return [
        f"other programs kept too many cores busy: no change of {', '.join(names)} will be called beside this baseline,"
        " save it again when nothing else runs"
    ]


def measurements(result: Result) -> list[Result]:
    """Return each measurement by itself of a benchmark that was measured more than once."""
    if len(result.measurements) < 2:
        return [result]
    first, parts = 0, []
    for count in result.measurements:
        parts.append(_only(result, range(first, first + count)))
        first += count
    return parts


def rounds_of(result: Result) -> int:
    """Return the number of rounds."""
    return max((len(one.samples) for one in result.contestants), default=0)


def _only(result: Result, rounds: Sequence[int]) -> Result:
    """The result with some of its rounds, as one measurement."""

    def of(series: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(series[place] for place in rounds) if series else ()

    contestants = [
        replace(one, samples=of(one.samples), by_processor=of(one.by_processor)) for one in result.contestants
    ]
    return replace(
        result,
        contestants=tuple(contestants),
        reference=of(result.reference),
        reference_by_processor=of(result.reference_by_processor),
        company_by_round=of(result.company_by_round),
        measurements=(),
    )
