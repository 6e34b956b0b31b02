"""Progress display of many seeds: one live line per seed in a terminal, occasional lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from velocirl.bench.reports.terminal import new_table
from velocirl.cli.train.seed_processes import SeedProcess
from velocirl.monitor.display import LINE_EVERY
from velocirl.monitor.words import say_count, say_figure, say_seconds
from velocirl.runs.seeds import Summary

STYLES = {"finished": "green", "running": "", "stopped": "yellow", "interrupted": "yellow", "failed": "red"}
BAR = 24  # columns
OTHER_LINES = 4  # of the terminal: the total, a gap, and the command line


class SeedsDisplay:
    """Progress display of the processes."""

    def __init__(self, console: Console, processes: Sequence[SeedProcess], title: str) -> None:
        self._console = console
        self._processes = processes
        self._title = title
        self._first = sum(one.steps for one in processes)
        self._began = time.monotonic()
        self._due = self._began + LINE_EVERY
        self._live: Live | None = None

    def start(self) -> None:
        """Print what is trained, and open the live lines."""
        self._console.print(self._title, style="bold", markup=False)
        if self._console.is_terminal:
            self._live = Live(self._picture(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)

    def refresh(self) -> None:
        """Update the display; without a terminal, only every other second."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        elif time.monotonic() >= self._due:
            self._console.print(f"{self._total()}", markup=False, soft_wrap=True)
            self._due = time.monotonic() + LINE_EVERY

    def end(self, one: SeedProcess) -> None:
        """Print how a seed ended, if it has no live line."""
        if self._live is None:
            mean = "" if one.mean is None else f"; return {say_figure(one.mean)}"
            self._console.print(f"seed {one.seed} {one.state} after {one.steps:,} steps{mean}", markup=False)

    def close(self) -> None:
        """Show the last state and restore the terminal; further calls do nothing."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
            self._live.stop()
            self._live = None

    def _picture(self) -> Group:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        for _ in range(5):
            table.add_column(no_wrap=True, justify="right")
        room = max(self._console.height - OTHER_LINES, 1)
        order = [*(one for one in self._processes if one.alive), *(one for one in self._processes if not one.alive)]
        shown = set(map(id, self._processes if len(order) <= room else order[:room]))
        for one in self._processes:
            if id(one) in shown:
                left = one.seconds_left
                table.add_row(
                    f"seed {one.seed}",
                    ProgressBar(total=max(one.total, 1), completed=min(one.steps, one.total), width=BAR),
                    f"{say_count(one.steps)} of {say_count(one.total)}",
                    "" if one.mean is None else f"return {say_figure(one.mean)}",
                    f"{say_seconds(left)} left" if left is not None else "",
                    Text("" if one.state == "running" else one.state, STYLES.get(one.state, "dim")),
                )
        return Group(table, Text(self._total(), "dim"))

    def _total(self) -> str:
        done, total = (sum(getattr(one, name) for one in self._processes) for name in ("steps", "total"))
        rate = (done - self._first) / max(time.monotonic() - self._began, 1e-9)
        left = f", {say_seconds((total - done) / rate)} left" if rate and total > done else ""
        states = [one.state for one in self._processes]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{done:>12,} steps {done / max(total, 1):>4.0%}  {say_count(rate)}/s{left}  {counts}"


def show_summary(console: Console, summary: Summary) -> None:
    """Print the seeds as a table, and their statistics."""
    table = new_table(console)
    for name in ("seed", "status", "steps", "return", "time"):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for one in summary.seeds:
        status = f"[{STYLES[one.status]}]{one.status}[/]" if STYLES.get(one.status) else escape(one.status)
        mean = "" if one.final_return is None else say_figure(one.final_return)
        table.add_row(str(one.seed), status, f"{one.steps:,}", mean, say_seconds(one.seconds))
    console.print(table)
    console.print(say_summary(summary), style="bold", markup=False, soft_wrap=True)
    console.print(
        f"{summary.steps:,} steps in {say_seconds(summary.seconds)},"
        f" {say_count(summary.steps_per_second)} steps/s of all together",
        markup=False,
    )


def say_summary(summary: Summary) -> str:
    """Format the mean return and its interval in one line."""
    if summary.mean is None:
        return "no seed has a return yet"
    number = f"{summary.averaged} seed{'s' if summary.averaged > 1 else ''}"
    if summary.low is None or summary.high is None:
        return f"return {say_figure(summary.mean)} of {number}; one says nothing of how sure that is"
    ends = f"{say_figure(summary.low)} to {say_figure(summary.high)}"
    return f"return {say_figure(summary.mean)}, {summary.confidence:.0%} interval {ends} ({summary.method}, {number})"
