"""Scaling comparisons: 1, 2, 4 and so on up to all cores, and the parallel efficiency relative to 1 worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Sampler
from velocirl.bench.reports.rivals import times_as_good
from velocirl.bench.results import Measured, Result
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import STEPS
from velocirl.engine.targets.cpu import available_cores


def worker_counts() -> list[int]:
    """Return 1, 2, 4 and so on up to all cores; includes 2 even on 1 core, to report that it is unavailable."""
    cores = available_cores()
    doubled = [1 << power for power in range(cores.bit_length()) if 1 << power <= cores]
    return sorted({1, 2, *doubled, cores})


def named(count: int, noun: str) -> str:
    """Format a number of workers: 1 thread, 2 threads."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def scaling(
    noun: str,
    make: Callable[[int], Sampler],
    *,
    at_least: float | None = None,
    beside: Mapping[str, Callable[[], Sampler]] | None = None,
) -> Comparison:
    """Compare each number of workers with 1 worker; `at_least` is the target for 2 workers.

    If there are other contestants in `beside`, such as the serial runtime, the target applies relative to them.
    """
    others = dict(beside or {})
    names = {named(count, noun): count for count in worker_counts()}
    one, two = named(1, noun), named(2, noun)
    claims = [
        ratio(name, one, at_least=at_least if name == two and not others else None) for name in names if name != one
    ]
    claims = [*(ratio(two, other, at_least=at_least) for other in others), *claims]
    made = {name: partial(make, count) for name, count in names.items()}
    return Comparison(unit=STEPS, contestants={**others, **made}, claims=claims, workers=names)


def say_efficiency(result: Result, one: Measured) -> str:
    """Format the efficiency for a table: 87%; empty if workers are not compared by their number."""
    found = efficiency(result, one)
    return "" if found is None else f"{found.median:.0%}"


def efficiency(result: Result, one: Measured) -> Estimate | None:
    """Compute the speed of n workers over n times the speed of 1, in every round; None if unknown."""
    single = next((other for other in result.contestants if other.workers == 1), None)
    times = times_as_good(result, one, single) if single is not None and one.workers else None
    return (
        None if times is None else Estimate(*(bound / one.workers for bound in (times.median, times.low, times.high)))
    )
