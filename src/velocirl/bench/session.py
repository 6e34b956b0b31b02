"""Benchmark sessions: runs benchmarks one after the other and reports progress to a watcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from velocirl.bench.comparison import Comparison, UnavailableError, as_comparison
from velocirl.bench.judging import judge
from velocirl.bench.machine.company import Company, CompanyByRound
from velocirl.bench.machine.facts import Machine
from velocirl.bench.machine.peaks import Peaks
from velocirl.bench.machine.reference import Reference
from velocirl.bench.measuring import Sampler, Settings, measure
from velocirl.bench.registry import Benchmark
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.time_limit import OutOfTime, time_limit
from velocirl.bench.units import NUMBER
from velocirl.engine.errors import debugging
from velocirl.monitor.attention import attention

REFERENCE = " reference"  # no contestant's name begins with a space


class Watcher(Protocol):
    """Observer of a run's progress."""

    def begin(self, benchmark: Benchmark) -> None:
        """Handle the start of a benchmark."""
        ...

    def advance(self, share: float) -> None:
        """Handle progress: `share` is the fraction of the measurement done so far."""
        ...

    def finish(self, result: Result) -> None:
        """Handle the result of a benchmark, even an incomplete one."""
        ...


@dataclass
class _Taken:
    """Data measured of a comparison so far; it survives errors and interrupts."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    by_processor: dict[str, list[float]] = field(default_factory=dict)
    samplers: dict[str, Sampler] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    company: float = 0.0
    company_by_round: CompanyByRound = field(default_factory=CompanyByRound)
    facts: dict[str, float] = field(default_factory=dict)


def run_benchmarks(
    benchmarks: Sequence[Benchmark],
    settings: Settings,
    machine: Machine,
    watcher: Watcher,
    command: str,
    *,
    peers: bool = True,
    peaks: Callable[[], Peaks] | None = None,
    seconds: float | None = None,
    left_out: Sequence[str] = (),
) -> Report:
    """Measure and evaluate benchmarks; `command` is the command line that reproduces the run.

    A benchmark that raises is reported, and the rest continues. An interrupt ends the run; its measurements are kept
    and marked. `peaks` measures the machine's peak performance once, if a benchmark is compared with it. After
    `seconds`, the remaining benchmarks are added to `left_out`.
    """
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    results: list[Result] = []
    limits: Peaks | None = None
    complete, waiting = True, [one.name for one in benchmarks]
    try:
        with time_limit(seconds), attention():  # the measured code shows no progress display
            for benchmark in benchmarks:
                watcher.begin(benchmark)
                result = _run(benchmark, settings, machine, watcher, peers)
                results.append(result)
                waiting.remove(benchmark.name)
                if result.interrupted:
                    raise KeyboardInterrupt
                if limits is None and peaks is not None and any(one.cost for one in result.contestants):
                    limits = peaks()
                watcher.finish(result)
    except OutOfTime:
        left_out = [*left_out, *waiting]
    except KeyboardInterrupt:
        complete = False
        if results and results[-1].interrupted:
            watcher.finish(results[-1])
    return Report(command, started, machine, settings, results, limits, complete, tuple(left_out))


def _run(benchmark: Benchmark, settings: Settings, machine: Machine, watcher: Watcher, peers: bool) -> Result:
    start = time.perf_counter()
    comparison, taken = Comparison(NUMBER, {}), _Taken()
    error, interrupted = "", False
    try:
        comparison = as_comparison(benchmark.name, benchmark.define())
        if not peers:
            comparison = comparison.without_peers()
        _measure(comparison, settings, watcher, taken)
    except KeyboardInterrupt:
        interrupted = True
    except Exception as fault:
        if debugging():
            raise
        error = f"{type(fault).__name__}: {' '.join(str(fault).split())}".rstrip(": ")
    rounds = min(map(len, taken.samples.values()), default=0)
    contestants = tuple(_measured(name, comparison, taken, rounds) for name in comparison.contestants)
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
        reference=tuple(taken.samples.get(REFERENCE, [])[:rounds]),
        reference_by_processor=tuple(taken.by_processor.get(REFERENCE, [])[:rounds]),
        company=taken.company,
        company_by_round=taken.company_by_round.cores()[:rounds],
        error=error,
        interrupted=interrupted,
        metadata={**benchmark.metadata, **taken.facts},
    )


def _measure(comparison: Comparison, settings: Settings, watcher: Watcher, taken: _Taken) -> None:
    with ExitStack() as stack:
        for name, make in comparison.contestants.items():
            try:
                taken.samplers[name] = make()
            except ModuleNotFoundError as error:
                if error.name is None or error.name.startswith("velocirl"):
                    raise
                taken.unavailable[name] = f"{error.name} is not installed"
            except UnavailableError as error:
                taken.unavailable[name] = str(error)
            else:
                stack.callback(taken.samplers[name].close)
        measured = {**taken.samplers, REFERENCE: Reference()} if taken.samplers else {}
        company = Company()
        try:
            measure(measured, settings, watcher.advance, taken.samples, taken.by_processor, taken.company_by_round)
        finally:
            taken.company = company.cores()
        tellers = (getattr(sampler, "facts", None) for sampler in taken.samplers.values())
        taken.facts = next((facts() for facts in tellers if facts is not None), {})  # of the first that has facts


def _measured(name: str, comparison: Comparison, taken: _Taken, rounds: int) -> Measured:
    """Collect a contestant's samples of the rounds in which every contestant was sampled."""
    peer, sampler = name in comparison.peers, taken.samplers.get(name)
    workers = comparison.workers.get(name, 0)
    if sampler is None:
        return Measured(name, unavailable=taken.unavailable.get(name, "not begun"), peer=peer, workers=workers)
    samples = tuple(taken.samples.get(name, ())[:rounds])
    unavailable = "" if samples else "not measured"
    own = tuple(taken.by_processor.get(name, ())[:rounds])
    by_processor = own if len(own) == len(samples) else ()
    return Measured(name, samples, sampler.iterations, unavailable, peer, sampler.cost, by_processor, workers)
