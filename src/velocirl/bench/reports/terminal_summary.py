"""Terminal summary of a run: key figures, missing measurements, failures and recommendations."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from velocirl.bench.reports.absent import absences
from velocirl.bench.reports.kpis import readings
from velocirl.bench.reports.recommendations import recommend
from velocirl.bench.reports.terminal import new_table, show_error
from velocirl.bench.results import Report

STATES = {"met": "green", "short": "yellow", "alert": "red"}
MOST_ADVICE = 5


def show_key_figures(console: Console, report: Report) -> None:
    """Print measured key figures as rows and the names of the others; nothing if none was measured."""
    found = [reading for reading in readings(report) if reading.estimate is not None]
    if not found:
        return
    table = new_table(console)
    table.add_column("key figure")
    for heading in ("measured", "target", "alert"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for reading in found:
        state = f"[{STATES[reading.status]}]{reading.status}[/{STATES[reading.status]}]"
        name = f"{reading.indicator.name} [dim]{escape(reading.benchmark)}[/dim]"
        table.add_row(name, reading.says_measured, reading.says_target, reading.says_alert, state)
    console.print(table)
    others = [reading.indicator.name for reading in readings(report) if reading.estimate is None]
    if others:
        console.print(f"no key figure for: {', '.join(others).lower()}", style="dim", markup=False)


def show_gaps(console: Console, report: Report) -> None:
    """Print what is missing: benchmarks not measurable here, failed, or left out for lack of time."""
    for reason, names in absences(report.results).items():
        console.print(f"not measured here: {', '.join(names)} ({reason})", style="dim", markup=False)
    if report.left_out:
        names = ", ".join(report.left_out)
        text = f"left out of this glance: {names} (velocirl bench measures them, by name or all of them)"
        console.print(text, style="dim", markup=False, soft_wrap=not console.is_terminal)
    for result in report.failures:
        show_error(console, f"failed: {result.name}: {result.error}")
    if not report.complete:
        text = f"interrupted: only {len(report.results)} benchmarks were begun"
        console.print(text, style="yellow", markup=False)


def show_advice(console: Console, report: Report) -> None:
    """Print the most urgent recommendations."""
    found = recommend(report)
    for one in found[:MOST_ADVICE]:
        console.print(
            f"[bold]{escape(one.text)}[/bold] [dim]({escape(one.measurement)})[/dim]", soft_wrap=not console.is_terminal
        )
    if len(found) > MOST_ADVICE:
        console.print(
            f"and {len(found) - MOST_ADVICE} more, which --html and --markdown tell", style="dim", markup=False
        )
