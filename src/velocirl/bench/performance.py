"""Measurements from Python without a benchmark file, one function at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console

from velocirl.bench.files import write_whole
from velocirl.bench.machine.company import CompanyByRound
from velocirl.bench.machine.facts import Machine, this_machine
from velocirl.bench.measuring import THOROUGH, Settings, Timed, measure, synchronise
from velocirl.bench.reports.terminal import show_result
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.units import RATE, SECONDS, Unit
from velocirl.monitor.attention import attention


@dataclass
class PerformanceBenchmark:
    """Measures your own functions as `velocirl bench` measures its own, and collects the results."""

    settings: Settings = THOROUGH
    results: list[Result] = field(default_factory=list)
    _machine: Machine = field(default_factory=this_machine, repr=False)
    _started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"), repr=False)

    def measure(
        self,
        func: Callable[[], object],
        name: str,
        category: str = "custom",
        iterations: int | None = None,
        warmup: int | None = None,
        *,
        amount: float | None = None,
        unit: Unit | None = None,
        **metadata: str | float | int | bool | None,
    ) -> Result:
        """Time a function in seconds per call or, if a call does an `amount` of work, in amount per second.

        With `iterations`, exactly this many calls are timed one by one, after `warmup` untimed calls. Without it, the
        number of calls is chosen to give samples of 0.1 s. Pending GPU work is waited for. `metadata` is stored with
        the result.
        """
        for word, number, least in (("iterations", iterations, 1), ("warmup", warmup, 0)):
            if number is not None and number < least:
                raise ValueError(f"{word} must be at least {least}, got {number}")
        if any(result.name == name for result in self.results):
            raise ValueError(f"{name!r} was measured already; give this one another name")
        timed, company = Timed(func, amount), CompanyByRound()
        start = time.perf_counter()
        with attention():  # the measured code shows no progress display
            for _ in range(warmup or 0 if iterations is None or warmup is not None else 1):
                func()
            if iterations is None:
                samples = measure({name: timed}, self.settings, lambda _: None, company=company)[name]
                by_round = company.cores()
            else:
                synchronise()
                company.mark()
                samples = [timed.sample() for _ in range(iterations)]
                company.mark()
                by_round = company.cores() * iterations
        shown = unit or (SECONDS if amount is None else RATE)
        measured = Measured(name, tuple(samples), timed.iterations)
        seconds = time.perf_counter() - start
        others = {"company": statistics.fmean(by_round), "company_by_round": by_round}
        result = Result(name, category, name, "", shown, (measured,), (), seconds, metadata=metadata, **others)
        self.results.append(result)
        return result

    def report(self) -> Report:
        """Return a report of all results, with the machine they were measured on."""
        return Report("PerformanceBenchmark().measure(...)", self._started, self._machine, self.settings, self.results)

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, like `velocirl bench --json`; `--compare` accepts it as a baseline."""
        write_whole(Path(path), self.report().as_json())

    def show(self) -> None:
        """Print all results."""
        for result in self.results:
            show_result(Console(highlight=False), result)
