"""Key figures: metrics that a user notices, each with a target and an alert level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import BYTES, MEGABYTES, PERCENT, SECONDS, STEPS, Unit

Status = Literal["met", "short", "alert", "not measured"]


@dataclass(frozen=True)
class Source:
    """Benchmark that provides a key figure, and patterns of its implementations such as `ppo_*` and `*cold*`."""

    benchmark: str
    contestant: str = "*"
    worst: bool = False  # the worst matching implementation, rather than the first


@dataclass(frozen=True)
class Indicator:
    """Key figure. The first measured source counts; a rate is converted to seconds if its unit is seconds."""

    name: str
    what: str
    unit: Unit
    target: float
    alert: float
    sources: Sequence[Source] = ()


@dataclass(frozen=True)
class Reading:
    """Value of a key figure in a report."""

    indicator: Indicator
    status: Status
    estimate: Estimate | None = None
    benchmark: str = ""
    contestant: str = ""

    @property
    def says_target(self) -> str:
        """Target for a table: < 1.00 ms."""
        return f"{'>' if self.indicator.unit.more_is_better else '<'} {self.indicator.unit.say(self.indicator.target)}"

    @property
    def says_alert(self) -> str:
        """Alert level for a table: > 5.00 ms."""
        return f"{'<' if self.indicator.unit.more_is_better else '>'} {self.indicator.unit.say(self.indicator.alert)}"

    @property
    def says_measured(self) -> str:
        """Value for a table."""
        return self.indicator.unit.say(self.estimate.median) if self.estimate else "not measured"


# Plants come first, if measured: they are the environments where the cost of a step, decision or episode matters.
INDICATORS = (
    Indicator(
        "Environment step", "one call of step", SECONDS, 1e-3, 5e-3, [Source("plant_step"), Source("single_step")]
    ),
    Indicator(
        "Environment step in a fleet",
        "per step of one copy",
        SECONDS,
        1e-3,
        5e-3,
        [
            Source("plant_fleet"),
            Source("cartpole_4096"),
            Source("random_loop"),
            Source("cartpole_64"),
            Source("built_in_environments"),
        ],
    ),
    Indicator(
        "Policy forward pass",
        "one observation",
        SECONDS,
        1e-4,
        1e-3,
        [Source("plant_decision"), Source("predict_one"), Source("forward_one")],
    ),
    Indicator("Safety checks", "time added to a step", PERCENT, 10.0, 25.0, [Source("safety_overhead")]),
    Indicator(
        "Memory of an episode",
        "peak growth",
        MEGABYTES,
        100.0,
        500.0,
        [Source("plant_episode_memory", worst=True), Source("episode_memory", worst=True)],
    ),
    Indicator(
        "Compile time",
        "to the first iteration, cold cache",
        SECONDS,
        5.0,
        30.0,
        [Source("plant_start", "*cold*"), Source("training_start", "*cold*"), Source("first_step", "*cold*")],
    ),
    Indicator(
        "Training throughput",
        "steps of training per second",
        STEPS,
        1000.0,
        100.0,
        [Source("ppo_4_epochs"), Source("ppo_1_epoch"), Source("ppo_*"), Source("dqn_*"), Source("sac_*")],
    ),
)


def readings(report: Report, indicators: Sequence[Indicator] = INDICATORS) -> list[Reading]:
    """Read every key figure from a report, measured or not."""
    return [_read(report, indicator) for indicator in indicators]


def _read(report: Report, indicator: Indicator) -> Reading:
    for source in indicator.sources:
        found = [
            Reading(indicator, judge(figure, indicator), figure, result.name, one.name)
            for result in report.results
            if fnmatchcase(result.name, source.benchmark)
            for one in result.contestants
            if fnmatchcase(one.name, source.contestant) and (figure := _figure(result, one, indicator.unit)) is not None
        ]
        if found:
            sign = 1.0 if indicator.unit.more_is_better else -1.0
            return min(found, key=lambda one: sign * _median(one)) if source.worst else found[0]
    return Reading(indicator, "not measured")


def _median(reading: Reading) -> float:
    return reading.estimate.median if reading.estimate else 0.0


def _figure(result: Result, one: Measured, unit: Unit) -> Estimate | None:
    """Return an implementation's value in the indicator's unit; None if it is not convertible."""
    found = one.estimate
    if found is None or one.peer or not all(map(math.isfinite, (found.median, found.low, found.high))):
        return None
    if result.unit.name == unit.name:
        return found
    if unit.name == MEGABYTES.name and result.unit.name == BYTES.name:
        return Estimate(found.median / 1e6, found.low / 1e6, found.high / 1e6)
    if unit.name == SECONDS.name and result.unit.name == STEPS.name and found.low > 0.0:
        return Estimate(1.0 / found.median, 1.0 / found.high, 1.0 / found.low)
    return None


def judge(found: Estimate, indicator: Indicator) -> Status:
    """Classify: met if the whole interval meets the target, alert if it is all beyond the alert level, else short."""
    sign = 1.0 if indicator.unit.more_is_better else -1.0
    best, worst = max(sign * found.low, sign * found.high), min(sign * found.low, sign * found.high)
    if worst > sign * indicator.target:
        return "met"
    return "alert" if best < sign * indicator.alert else "short"
