"""Display of a monitored run: a live panel in a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from velocirl.cli.runs import COLORS
from velocirl.monitor.advice import advise
from velocirl.monitor.display import NARROWEST, WIDEST
from velocirl.monitor.heartbeat_file import HeartbeatState
from velocirl.monitor.phases import tree_lines
from velocirl.monitor.words import (
    in_lines,
    printable,
    say_bytes,
    say_count,
    say_figure,
    say_gauge,
    say_phases,
    say_resources,
    say_seconds,
)
from velocirl.runs.curves.characters import sparkline

if TYPE_CHECKING:
    from velocirl.cli.monitor.command import Sight

SPARKS = 40  # characters of a curve of the last minutes
BAR = 20  # characters of a phase that takes all of the time
OLD = 5.0  # seconds from which the age of a heartbeat is shown


def show_live(console: Console, sights: Iterable[Sight]) -> None:
    """Show a live panel until the run ends, then its final status."""
    sight = None
    with Live(console=console, auto_refresh=False) as live:
        for sight in sights:
            live.update(panel(console, sight), refresh=True)
    if sight is not None and not sight.running:
        console.print(ending(sight), soft_wrap=True, markup=False)


def show_lines(console: Console, sights: Iterable[Sight]) -> None:
    """Print a line for each state, then the final status."""
    for sight in sights:
        if sight.running or sight.heartbeat is not None:
            console.print(line(sight), soft_wrap=True, markup=False)
        if not sight.running:
            console.print(ending(sight), soft_wrap=True, markup=False)


def show(console: Console, sight: Sight) -> None:
    """Print one state."""
    if console.is_terminal:
        console.print(panel(console, sight))
    else:
        for part in _parts(console, sight, WIDEST):
            console.print(part)
    if not sight.running:
        console.print(ending(sight), soft_wrap=True, markup=False)


def panel(console: Console, sight: Sight) -> Panel:
    """Build the panel of a run's state."""
    width = min(console.width, WIDEST)
    parts = Group(*_parts(console, sight, width - 4))
    return Panel(parts, title=_title(sight), title_align="left", box=box.ROUNDED, border_style="dim", width=width)


def line(sight: Sight) -> str:
    """Format a run's state as one line."""
    heartbeat = sight.heartbeat
    if heartbeat is None or sight.compiling:
        return _before_training(sight)
    left, mean = sight.seconds_left, heartbeat.mean_return
    gauges = [say_gauge(name, value) for name, value in heartbeat.gauges.items()]
    said = [
        f"{heartbeat.steps:>12,} steps {heartbeat.progress:>4.0%}",
        f"{say_count(heartbeat.steps_per_second)}/s",
        *([] if left is None else [f"{say_seconds(left)} left"]),
        *([] if mean is None else [f"return {say_figure(mean)}"]),
        *say_resources(heartbeat.resources),
        *gauges,
        *say_phases(heartbeat.phases),
        *_heard(sight),
    ]
    return "  ".join(said)


def ending(sight: Sight) -> str:
    """Format the final status of a run, and how to continue."""
    name, heartbeat = printable(sight.path.name), sight.heartbeat
    steps = "" if heartbeat is None else f" after {heartbeat.steps:,} steps"
    mean = "" if heartbeat is None or heartbeat.mean_return is None else f"; return {say_figure(heartbeat.mean_return)}"
    missing = " (it has no heartbeat)" if heartbeat is None else ""
    if sight.status == "finished":
        return f"{name} has finished{steps}{mean}{missing}"
    how = "was interrupted" if sight.status == "interrupted" else f"has {sight.status}"
    return f"{name} {how}{steps}{mean}{missing}: go on with `velocirl resume {name}`"


def _title(sight: Sight) -> Text:
    description = sight.description
    what = f"  {printable(description.algorithm)}  seed {description.seed}"
    return Text.assemble((printable(description.environment), "bold"), what, (f"  {printable(sight.path.name)}", "dim"))


def _parts(console: Console, sight: Sight, width: int) -> list[Any]:
    heartbeat = sight.heartbeat
    if heartbeat is None or sight.compiling:
        return [*([] if console.is_terminal else [_title(sight)]), Text(_before_training(sight))]
    plain, wide = console.options.ascii_only, width >= NARROWEST
    parts = [*_progress(sight, heartbeat, width, wide), "", _figures(sight, heartbeat, wide, plain)]
    if heartbeat.phases:
        parts += ["", _phases(heartbeat, wide, plain)]
    if heartbeat.gauges:
        parts += ["", Text(in_lines([say_gauge(name, value) for name, value in heartbeat.gauges.items()], width))]
    parts += [Text(words, "yellow") for words in advise(heartbeat.gauges, heartbeat.phases, heartbeat.resources)]
    return parts if console.is_terminal else [_title(sight), *parts]


def _progress(sight: Sight, heartbeat: HeartbeatState, width: int, wide: bool) -> list[Any]:
    """Return a progress bar with its text to the right or, without room, below."""
    left = sight.seconds_left
    said = [
        f"{say_count(heartbeat.steps)} of {say_count(heartbeat.total)} steps",
        f"{say_count(heartbeat.steps_per_second)}/s",
    ]
    text = "   ".join([*said, *([] if left is None else [f"{say_seconds(left)} left"])])
    total, done = max(heartbeat.total - heartbeat.start, 1), max(heartbeat.steps - heartbeat.start, 0)
    bar = ProgressBar(total=total, completed=min(done, total), width=max(8, width - 8 - (len(text) if wide else 0)))
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(bar, f"{heartbeat.progress:>4.0%}", *([Text(text, no_wrap=True)] if wide else []))
    return [row] if wide else [row, Text(text, no_wrap=True)]


def _figures(sight: Sight, heartbeat: HeartbeatState, wide: bool, plain: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    resources, history = heartbeat.resources, heartbeat.history

    def add(name: str, value: str | Text, curve: list[float] | None = None) -> None:
        table.add_row(name, value, sparkline(curve, SPARKS, ascii_only=plain) if curve and wide else "")

    add("status", Text(sight.status, COLORS.get(sight.status, "red")))
    for heard in _heard(sight):
        add("", heard)
    if heartbeat.mean_return is not None:
        add("return", Text(say_figure(heartbeat.mean_return), "bold"))
    add("steps/s", say_count(heartbeat.steps_per_second), [one.steps_per_second for one in history])
    add("CPU", f"{resources.cpu_percent:.0f}%", [one.cpu_percent for one in history])
    add("memory", say_bytes(resources.memory_bytes), [float(one.memory_bytes) for one in history])
    if resources.gpu_percent is not None:
        add("GPU", f"{resources.gpu_percent:.0f}%")
    if resources.gpu_memory_bytes is not None:
        add("GPU memory", say_bytes(resources.gpu_memory_bytes))
    return table


def _phases(heartbeat: HeartbeatState, wide: bool, plain: bool) -> Table:
    """Build a tree of the phases' fractions of the time."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    block = "#" if plain else "█"
    for depth, name, share, _ in tree_lines(heartbeat.phases):
        bar = block * round(BAR * min(max(share, 0.0), 1.0)) if wide else ""
        table.add_row(Text("  " * depth + printable(name), "dim" if depth else ""), f"{share:.1%}", bar)
    return table


def _heard(sight: Sight) -> list[str]:
    """Return a note if the last heartbeat is old."""
    if not sight.running or sight.age is None or sight.age < OLD:
        return []
    return [f"last heard of {say_seconds(sight.age)} ago"]


def _before_training(sight: Sight) -> str:
    """Format the state of a run that has no metrics yet."""
    if sight.compiling:
        return f"compiling, for {say_seconds(sight.age or 0.0)} so far: the first figures come after that"
    yet = " yet" if sight.running else ""
    return f"{printable(sight.path.name)} is {sight.status} and has no heartbeat{yet}"
