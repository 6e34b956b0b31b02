"""Terminal display of all changes since a baseline."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from velocirl.bench.regression import Change, Compared
from velocirl.bench.reports.terminal import new_table

COLORS = {"failure": "red", "warning": "yellow", "inconclusive": "dim yellow", "improved": "green", "none": "dim"}
WORDS = {"failure": "worse, fails", "warning": "worse", "none": "as before"}


def show_compared(console: Console, compared: Compared, name: str) -> None:
    """Print a table of changed values, and the number of unchanged ones."""
    console.print(f"beside the baseline {name}", style="bold", markup=False)
    if compared.other_machine:
        console.print(
            "the baseline is of another machine: only ratios to peers are compared", style="yellow", markup=False
        )
        if not compared.changes:
            console.print("there are none in both runs: measure both with --peers", style="yellow", markup=False)
    shown = [change for change in compared.changes if change.severity != "none"]
    if shown:
        console.print(_table(console, shown))
    same = len(compared.changes) - len(shown)
    console.print(f"{same} of {len(compared.changes)} figures as before", markup=False)
    for names, text in ((compared.missing, "only in the baseline"), (compared.new, "not in the baseline")):
        if names:
            console.print(f"{text}: {', '.join(names)}", style="dim", markup=False)


def _table(console: Console, changes: list[Change]) -> Table:
    table = new_table(console)
    for heading in ("benchmark", ""):
        table.add_column(heading)
    for heading in ("before", "now", "change", "95% interval"):
        table.add_column(heading, justify="right")
    for heading in ("", "why"):
        table.add_column(heading)
    worst_first = sorted(changes, key=lambda change: (list(COLORS).index(change.severity), change.ratio.median))
    for change in worst_first:
        color = COLORS[change.severity]
        interval = f"{change.ratio.low - 1.0:+.1%} to {change.ratio.high - 1.0:+.1%}"
        before, now = (
            "" if found is None else escape(change.unit.say(found.median)) for found in (change.before, change.after)
        )
        word = WORDS.get(change.severity, change.severity)
        cells = (escape(change.benchmark), escape(change.contestant), before, now, f"{change.ratio.median - 1.0:+.1%}")
        table.add_row(*cells, interval, f"[{color}]{word}[/{color}]", escape(change.reason))
    return table
