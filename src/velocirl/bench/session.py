"""Running benchmarks one after the other, and telling whoever watches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Protocol

from velocirl.bench.comparison import Comparison, UnavailableError
from velocirl.bench.judging import judge
from velocirl.bench.machine import Machine
from velocirl.bench.measuring import Sampler, Settings, measure
from velocirl.bench.registry import Benchmark
from velocirl.bench.results import Measured, Report, Result


class Watcher(Protocol):
    """Who is told how a run goes."""

    def begin(self, benchmark: Benchmark) -> None:
        """A benchmark begins."""
        ...

    def advance(self, share: float) -> None:
        """Of its measuring, this share is done."""
        ...

    def finish(self, result: Result) -> None:
        """It is done."""
        ...


def run_benchmarks(
    benchmarks: Sequence[Benchmark], settings: Settings, machine: Machine, watcher: Watcher, command: str
) -> Report:
    """Measure and judge; `command` is what a reader has to type to see the same."""
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    results = []
    for benchmark in benchmarks:
        watcher.begin(benchmark)
        result = _run(benchmark, settings, machine, watcher)
        watcher.finish(result)
        results.append(result)
    return Report(command, started, machine, settings, results)


def _run(benchmark: Benchmark, settings: Settings, machine: Machine, watcher: Watcher) -> Result:
    start = time.perf_counter()
    comparison = benchmark.define()
    contestants = _measure(comparison, settings, watcher)
    findings = [judge(claim, contestants, comparison.unit, busy=machine.busy) for claim in comparison.claims]
    return Result(
        name=benchmark.name,
        category=benchmark.category,
        title=benchmark.title,
        notes=benchmark.notes,
        unit=comparison.unit,
        contestants=contestants,
        findings=tuple(findings),
        seconds=time.perf_counter() - start,
    )


def _measure(comparison: Comparison, settings: Settings, watcher: Watcher) -> tuple[Measured, ...]:
    samplers: dict[str, Sampler] = {}
    unavailable: dict[str, str] = {}
    with ExitStack() as stack:
        for name, make in comparison.contestants.items():
            try:
                samplers[name] = make()
            except ModuleNotFoundError as error:
                if error.name is None or error.name.startswith("velocirl"):
                    raise
                unavailable[name] = f"{error.name} is not installed"
            except UnavailableError as error:
                unavailable[name] = str(error)
            else:
                stack.callback(samplers[name].close)
        samples = measure(samplers, settings, watcher.advance)
    return tuple(
        Measured(name, unavailable=unavailable[name])
        if name in unavailable
        else Measured(name, tuple(samples[name]), samplers[name].iterations)
        for name in comparison.contestants
    )
