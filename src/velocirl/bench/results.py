"""What came of a run: samples, findings and where they were taken, complete enough to be judged again later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from velocirl.bench.machine import Machine
from velocirl.bench.measuring import Settings
from velocirl.bench.statistics import CONFIDENCE, NOISY_FROM, Estimate, estimate, spread
from velocirl.bench.units import Unit

FORMAT = 1  # of the JSON file

MET, MISSED, UNDECIDED, NOT_MEASURED, NO_TARGET = "met", "missed", "undecided", "not measured", ""


@dataclass(frozen=True)
class Measured:
    """The samples of one contestant or, where there are none, why."""

    name: str
    samples: tuple[float, ...] = ()
    iterations: int = 0
    unavailable: str = ""

    @property
    def estimate(self) -> Estimate | None:
        """The median and its interval."""
        return estimate(self.samples) if self.samples else None

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median."""
        return spread(self.samples) if self.samples else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the samples disagree too much for conclusions."""
        return self.spread > NOISY_FROM


@dataclass(frozen=True)
class Finding:
    """What a claim came to."""

    statement: str
    unit: Unit
    target: float | None
    at_most: bool
    estimate: Estimate | None
    verdict: str

    @property
    def says_target(self) -> str:
        """The target for a table: at least 3.00x."""
        if self.target is None:
            return ""
        return f"{'at most' if self.at_most else 'at least'} {self.unit.say(self.target)}"


@dataclass(frozen=True)
class Result:
    """A benchmark that ran."""

    name: str
    category: str
    title: str
    notes: str
    unit: Unit
    contestants: tuple[Measured, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def warnings(self) -> list[str]:
        """A line where samples disagree too much."""
        noisy = ", ".join(f"{one.name} {one.spread:.0%}" for one in self.contestants if one.noisy)
        return [f"too noisy to conclude from (spread above {NOISY_FROM:.0%}): {noisy}"] if noisy else []


@dataclass(frozen=True)
class Report:
    """A whole run."""

    command: str
    started: str  # date and time, ISO 8601
    machine: Machine
    settings: Settings
    results: Sequence[Result]

    def as_json(self) -> str:
        """All of it, raw samples included."""
        content = {
            "format": FORMAT,
            "command": self.command,
            "started": self.started,
            "machine": asdict(self.machine),
            "settings": asdict(self.settings),
            "confidence": CONFIDENCE,
            "noisy_from": NOISY_FROM,
            "benchmarks": [_result(result) for result in self.results],
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _result(result: Result) -> Mapping[str, Any]:
    return {
        **{name: getattr(result, name) for name in ("name", "category", "title", "notes", "seconds")},
        "unit": result.unit.name,
        "more_is_better": result.unit.more_is_better,
        "contestants": [
            {**asdict(one), "estimate": _estimate(one.estimate), "spread": one.spread, "noisy": one.noisy}
            for one in result.contestants
        ],
        "findings": [
            {
                "statement": finding.statement,
                "unit": finding.unit.name,
                "target": finding.target,
                "at_most": finding.at_most,
                "estimate": _estimate(finding.estimate),
                "verdict": finding.verdict,
            }
            for finding in result.findings
        ],
    }


def _estimate(found: Estimate | None) -> Mapping[str, float] | None:
    return None if found is None else asdict(found)
