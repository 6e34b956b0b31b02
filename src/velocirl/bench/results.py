"""Results of a run: samples, findings and machine, complete enough to be evaluated again later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from velocirl.bench.machine.company import NOTABLE
from velocirl.bench.machine.cost import Cost
from velocirl.bench.machine.facts import Machine
from velocirl.bench.machine.peaks import Peaks, Share, share_of_peak
from velocirl.bench.measuring import Settings
from velocirl.bench.statistics import CONFIDENCE, NOISY_FROM, Estimate, estimate, spread
from velocirl.bench.units import Unit

FORMAT = 2  # version of the JSON format

MET, MISSED, UNDECIDED, NOT_MEASURED, NO_TARGET = "met", "missed", "undecided", "not measured", ""


@dataclass(frozen=True)
class Measured:
    """Samples of one implementation or, if there are none, the reason."""

    name: str
    samples: tuple[float, ...] = ()
    iterations: int = 0
    unavailable: str = ""
    peer: bool = False  # third-party
    cost: Cost | None = None
    by_processor: tuple[float, ...] = ()  # the same samples by this process's CPU time
    workers: int = 0  # threads, processes or ranks, if contestants differ by their number

    @cached_property
    def estimate(self) -> Estimate | None:
        """Median and its interval."""
        return estimate(self.samples) if self.samples else None

    @property
    def spread(self) -> float:
        """Interquartile range as a fraction of the median."""
        return spread(self.samples) if self.samples else 0.0

    @property
    def noisy(self) -> bool:
        """True if the samples disagree too much for conclusions."""
        return self.spread > NOISY_FROM


@dataclass(frozen=True)
class Finding:
    """Evaluated claim."""

    statement: str
    unit: Unit
    target: float | None
    at_most: bool
    estimate: Estimate | None
    verdict: str

    @property
    def says_target(self) -> str:
        """Target for a table: at least 3.00x."""
        if self.target is None:
            return ""
        return f"{'at most' if self.at_most else 'at least'} {self.unit.say(self.target)}"


@dataclass(frozen=True)
class Result:
    """Result of one benchmark, possibly incomplete."""

    name: str
    category: str
    title: str
    notes: str
    unit: Unit
    contestants: tuple[Measured, ...]
    findings: tuple[Finding, ...]
    seconds: float
    reference: tuple[float, ...] = ()  # seconds of the reference workload in each round: the speed of the machine
    reference_by_processor: tuple[float, ...] = ()
    company: float = 0.0  # cores that other programs kept busy meanwhile
    company_by_round: tuple[float, ...] = ()  # the same number during each round
    measurements: tuple[int, ...] = ()  # rounds per measurement, if it was measured more than once
    error: str = ""  # reason why it ended early
    interrupted: bool = False  # the user stopped it
    metadata: dict[str, str | float | int | bool | None] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """One line for each reason to be careful with these values."""
        lines = []
        noisy = ", ".join(f"{one.name} {one.spread:.0%}" for one in self.contestants if one.noisy)
        if noisy:
            lines.append(f"too noisy to conclude from (spread above {NOISY_FROM:.0%}): {noisy}")
        if self.company >= NOTABLE:
            lines.append(f"other programs kept {self.company:.1f} cores busy meanwhile")
        if self.interrupted:
            lines.append("interrupted: these are the rounds so far")
        return lines


@dataclass(frozen=True)
class Report:
    """Complete run."""

    command: str
    started: str  # date and time, ISO 8601
    machine: Machine
    settings: Settings
    results: Sequence[Result]
    peaks: Peaks | None = None  # the machine's peak performance, if something was compared with it
    complete: bool = True  # False: interrupted
    left_out: tuple[str, ...] = ()  # benchmarks that did not fit into the time limit

    @property
    def failures(self) -> list[Result]:
        """Benchmarks that raised an error."""
        return [result for result in self.results if result.error]

    def share(self, result: Result, one: Measured) -> Share | None:
        """Return the fraction of the machine's limit that an implementation reached, if cost and limit are known."""
        if self.peaks is None or one.cost is None or not one.samples:
            return None
        found = one.estimate
        assert found is not None  # noqa: S101 - for the type checker: there are samples
        per_second = found.median if result.unit.more_is_better else 1.0 / found.median
        return share_of_peak(one.cost, per_second, self.peaks)

    def as_json(self, **more: Any) -> str:
        """Return everything as JSON, raw samples included, plus the entries in `more`."""
        content = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in ("command", "started", "complete")},
            "left_out": list(self.left_out),
            "machine": asdict(self.machine),
            "settings": asdict(self.settings),
            "peaks": None if self.peaks is None else asdict(self.peaks),
            "confidence": CONFIDENCE,
            "noisy_from": NOISY_FROM,
            "results": [self._result(result) for result in self.results],
            **more,
        }
        return json.dumps(content, allow_nan=False, indent=1) + "\n"

    def _result(self, result: Result) -> dict[str, Any]:
        content = asdict(result)
        for plain, one in zip(content["contestants"], result.contestants, strict=True):
            share = self.share(result, one)
            plain["estimate"] = None if one.estimate is None else asdict(one.estimate)
            plain |= {"spread": one.spread, "noisy": one.noisy, "share": None if share is None else asdict(share)}
        return content
