"""Terminal display of a run: progress while it runs, and a table after each benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from velocirl.bench.machine.facts import Machine
from velocirl.bench.machine.peaks import Peaks
from velocirl.bench.registry import Benchmark
from velocirl.bench.reports.roofline import share_in
from velocirl.bench.results import MET, MISSED, NOT_MEASURED, UNDECIDED, Measured, Report, Result
from velocirl.bench.scaling import say_efficiency

COLORS = {MET: "green", MISSED: "red", UNDECIDED: "yellow", NOT_MEASURED: "dim"}


class TerminalWatcher:
    """Progress display of a run; without a terminal, prints a line before and a table after each benchmark."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._begun = 0
        self._began = time.perf_counter()
        self._done: list[float] = []  # seconds of each benchmark
        self._peaks: Peaks | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}[/dim]"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=1.0, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def remembering(self, measure: Callable[[], Peaks]) -> Callable[[], Peaks]:
        """Wrap `measure`, which measures the machine's limits, so that later results are shown with them."""

        def peaks() -> Peaks:
            self._progress.update(self._task, description="the machine's limits")
            self._peaks = measure()
            return self._peaks

        return peaks

    def begin(self, benchmark: Benchmark) -> None:
        """Show the name of the benchmark that begins."""
        self._begun += 1
        self._began = time.perf_counter()
        place = f"{self._begun}/{self._total}" if self._begun <= self._total else "again"
        self._progress.reset(self._task, description=f"{place} {escape(benchmark.name)}", left=self._left())
        if not self._console.is_terminal:
            self._console.print(f"measuring {place} {benchmark.title}", markup=False)

    def advance(self, share: float) -> None:
        """Advance the progress bar."""
        self._progress.update(self._task, completed=share, left=self._left())

    def finish(self, result: Result) -> None:
        """Show the result."""
        self._done.append(result.seconds)
        show_result(self._console, result, self._peaks)

    def _left(self) -> str:
        seconds = seconds_left(self._done, self._total - self._begun, time.perf_counter() - self._began)
        return "" if seconds is None else f"about {say_duration(seconds)} left"


def seconds_left(done: Sequence[float], following: int, elapsed: float) -> float | None:
    """Estimate the remaining seconds from the mean so far: the current benchmark and the `following` ones."""
    if not done or following < 0:
        return None
    each = sum(done) / len(done)
    return max(each - elapsed, 0.0) + following * each


def say_duration(seconds: float) -> str:
    """Format a duration: 40 s, 3 min, 1 h 20 min."""
    minutes = round(seconds / 60.0)
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def show_machine(console: Console, machine: Machine) -> None:
    """Print the machine and the versions in two lines."""
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    gpu = f", {machine.gpu}" if machine.gpu else ""
    text = f"{machine.processor}, {machine.cores} cores, {memory}{gpu}, load {machine.load:.2f}"
    console.print(text, markup=False)
    console.print(versions, style="dim", markup=False)
    show_warnings(console, machine.warnings)


def show_result(console: Console, result: Result, peaks: Peaks | None = None) -> None:
    """Print one benchmark's table, claims, noise warnings, and the reason if it ended early."""
    if console.is_terminal:
        console.print(result.title, style="bold", markup=False)
    reasons = list(dict.fromkeys(one.unavailable for one in result.contestants))
    if any(one.samples for one in result.contestants):
        console.print(_contestants(console, result, peaks))
        _show_findings(console, result)
    elif reasons and not result.error:
        console.print(f"not measured: {'; '.join(reasons)}", style="dim", markup=False)
    if result.error:
        show_error(console, f"error: {result.error}")
    show_warnings(console, result.warnings)
    console.print()


def _contestants(console: Console, result: Result, peaks: Peaks | None) -> Table:
    table = new_table(console)
    table.add_column("")
    shares = [share_in(result, one, peaks) for one in result.contestants]
    efficiencies = [say_efficiency(result, one) for one in result.contestants]
    scaled = any(efficiencies)
    more = (*(("efficiency",) if scaled else ()), *(("of the limit",) if any(shares) else ()))
    for heading in ("median", "95% interval", "spread", *more):
        table.add_column(heading, justify="right")
    for one, share, efficiency in zip(result.contestants, shares, efficiencies, strict=True):
        limit = (f"{share.of_peak:.0%} of {share.bound}",) if share is not None else ()
        figures = _figures(result, one)
        if one.estimate is not None:
            figures = (*figures, *((efficiency,) if scaled else ()), *limit)
        table.add_row(escape(one.name), *figures)
    return table


def _figures(result: Result, one: Measured) -> tuple[str, ...]:
    found = one.estimate
    if found is None:
        return (f"[dim]{escape(one.unavailable)}[/dim]",)
    figure, interval = result.unit.say(found.median), result.unit.say_interval(found)
    return escape(figure), interval, f"{one.spread:.1%}"


def _show_findings(console: Console, result: Result) -> None:
    for finding in result.findings:
        measured = finding.unit.say(finding.estimate.median) if finding.estimate else ""
        parts = (f"[bold]{escape(measured)}[/bold]" if measured else "", escape(finding.says_target))
        said = ", ".join(part for part in (*parts, colored(finding.verdict)) if part)
        console.print(f"  {escape(finding.statement)}: {said}")


def show_summary(console: Console, report: Report) -> None:
    """Print how many targets were met, the key figures, what is missing, and recommendations."""
    # Every command that prints a table imports this file; only this function needs these.
    from velocirl.bench.reports.terminal_summary import show_advice, show_gaps, show_key_figures

    show_key_figures(console, report)
    show_gaps(console, report)
    show_advice(console, report)
    verdicts = [finding.verdict for result in report.results for finding in result.findings]
    counts = [f"{verdicts.count(verdict)} {colored(verdict)}" for verdict in COLORS if verdict in verdicts]
    seconds = sum(result.seconds for result in report.results)
    console.print(f"targets: {', '.join(counts) or 'none'} ({seconds:.0f} s)")


def new_table(console: Console) -> Table:
    """Create a table: styled in a terminal, plain columns elsewhere."""
    if console.is_terminal:
        return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def colored(verdict: str) -> str:
    """Return a verdict in its color, as rich's markup."""
    color = COLORS.get(verdict, "dim")
    return f"[{color}]{escape(verdict)}[/{color}]" if verdict else ""


def show_error(console: Console, text: str) -> None:
    """Print an error in one line, truncated to the width of a terminal."""
    if console.is_terminal:
        console.print(text, style="red", markup=False, no_wrap=True, overflow="ellipsis")
    else:
        console.print(text, style="red", markup=False, soft_wrap=True)


def show_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print one line per warning."""
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
