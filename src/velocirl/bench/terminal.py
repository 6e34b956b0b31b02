"""A run as a person sees it in a terminal: progress while it goes, a table when a benchmark is done."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from velocirl.bench.machine import Machine
from velocirl.bench.registry import Benchmark
from velocirl.bench.results import MET, MISSED, NOT_MEASURED, UNDECIDED, Report, Result

COLORS = {MET: "green", MISSED: "red", UNDECIDED: "yellow", NOT_MEASURED: "dim"}


class TerminalWatcher:
    """Shows how a run goes; without a terminal, a line when a benchmark begins and its table when it is done."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._begun = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, benchmark: Benchmark) -> None:
        """Name the benchmark that begins."""
        self._begun += 1
        place = f"{self._begun}/{self._total}"
        self._progress.reset(self._task, description=f"{place} {escape(benchmark.name)}")
        if not self._console.is_terminal:
            self._console.print(f"measuring {place} {benchmark.title}", markup=False)

    def advance(self, share: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=share)

    def finish(self, result: Result) -> None:
        """Show what was measured."""
        show_result(self._console, result)


def show_machine(console: Console, machine: Machine) -> None:
    """What the figures were taken on, in two lines."""
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    console.print(f"{machine.processor}, {machine.cores} cores, {memory}, load {machine.load:.2f}")
    console.print(versions, style="dim")
    _warn(console, machine.warnings)


def show_result(console: Console, result: Result) -> None:
    """The table of one benchmark, what was claimed, and how noisy it was."""
    table = new_table(console)
    table.add_column("")
    for heading in ("median", "95% interval", "spread"):
        table.add_column(heading, justify="right")
    for one in result.contestants:
        found = one.estimate
        if found is None:
            table.add_row(escape(one.name), f"[dim]{escape(one.unavailable)}[/dim]")
        else:
            figure, interval = result.unit.say(found.median), result.unit.say_interval(found)
            table.add_row(escape(one.name), figure, interval, f"{one.spread:.1%}")
    if console.is_terminal:
        console.print(result.title, style="bold", markup=False)
    console.print(table)
    for finding in result.findings:
        measured = finding.unit.say(finding.estimate.median) if finding.estimate else ""
        parts = (f"[bold]{measured}[/bold]" if measured else "", finding.says_target, _colored(finding.verdict))
        console.print(f"  {escape(finding.statement)}: {', '.join(part for part in parts if part)}")
    _warn(console, result.warnings)
    console.print()


def show_summary(console: Console, report: Report) -> None:
    """How many targets were met."""
    verdicts = [finding.verdict for result in report.results for finding in result.findings]
    counts = [f"{verdicts.count(verdict)} {_colored(verdict)}" for verdict in COLORS if verdict in verdicts]
    seconds = sum(result.seconds for result in report.results)
    console.print(f"targets: {', '.join(counts) or 'none'} ({seconds:.0f} s)")


def new_table(console: Console) -> Table:
    """A table for people in a terminal, plain columns for programs elsewhere."""
    if console.is_terminal:
        return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _colored(verdict: str) -> str:
    return f"[{COLORS[verdict]}]{verdict}[/{COLORS[verdict]}]" if verdict else ""


def _warn(console: Console, warnings: list[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
