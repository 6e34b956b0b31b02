"""Quiet rounds: rounds that other programs hardly disturbed; two runs are compared by them.

Background load misleads in both directions. Compared with a baseline taken next to a busy process, the same code seems
faster, and slower code seems unchanged. Each round therefore records how many cores other programs kept busy; disturbed
rounds count only if there are no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from velocirl.bench.machine.company import NOTABLE, TOO_MUCH
from velocirl.bench.results import Report, Result

FEWEST = 3  # minimum number of rounds for a conclusion


def quiet(result: Result) -> Result:
    """Return the result with its quiet rounds only, and their mean background load.

    Rounds count if other programs kept fewer than 0.25 cores busy; if these are less than half of the rounds, fewer
    than 0.75. If these are too few as well, all rounds count, and their load shows that nothing can be concluded.
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
    """Return a warning if a run was too disturbed to be a baseline for some of its benchmarks."""
    names = [result.name for result in report.results if too_busy(result)]
    if not names:
        return []
    return [
        f"other programs kept too many cores busy: no change of {', '.join(names)} will be called beside this baseline,"
        " save it again when nothing else runs"
    ]


def measurements(result: Result) -> list[Result]:
    """Return the single measurements of a benchmark that was measured more than once."""
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
    """Return the result restricted to some of its rounds, as one measurement."""

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
