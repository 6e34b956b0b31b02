"""`velocirl bench history`: results of benchmarks from run to run, and the commits that changed them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.bench.files import require_writable
from velocirl.bench.history.rows import Identity, describe
from velocirl.bench.history.runs import History, default_path
from velocirl.bench.history.trends import Trend, trend
from velocirl.cli.bench.history_words import as_plain, say_change, say_day, say_last_change
from velocirl.cli.parsing import Parser, whole_number
from velocirl.engine.naming import nearest
from velocirl.monitor.console import make_console

if TYPE_CHECKING:
    from rich.console import Console

DESCRIPTION = "Show how the results of benchmarks developed from run to run, and which commits changed their level."
EVERY_MACHINE = "all"
PLOT_HEIGHT, MOST_WIDTH = 12, 100
BEGIN_ONE = (
    "velocirl bench measures, and every run is kept (velocirl bench --quick for a glance, with --quick here too)"
)


def bench_history(arguments: Sequence[str]) -> None:
    """Show all benchmarks that were measured, or the trends of one benchmark or category."""
    given = _parser().parse(arguments)
    path, picture = given.get("file", default_path()), given.get("png")
    if given.get("last", 1) < 1:
        raise ValueError(f"--last must be at least 1, got {given['last']}")
    if picture is not None:
        require_writable(picture)
    if os.path.lexists(path):
        history = History.open(path, create=False)
        trends = _trends(history, _machines(history, given.get("machine")), given)
    else:
        history, trends = None, []
    if picture is not None:
        from velocirl.cli.bench.history_picture import write_picture

        write_picture(picture, trends)
    if "json" in given:
        print(json.dumps({"file": str(path), "trends": [as_plain(one) for one in trends]}, indent=1, allow_nan=False))
        return
    console = make_console()
    if history is None:
        console.print(f"there is no history {path} yet: {BEGIN_ONE}", markup=False, soft_wrap=True)
    elif not trends:
        _say_nothing(console, history)
    elif "name" in given:
        for one in trends:
            _show_trend(console, one)
    else:
        _show_table(console, trends)
    if picture is not None:
        console.print(f"picture  {picture.resolve()}", markup=False, soft_wrap=True)


def _parser() -> Parser:
    parser = Parser("bench", DESCRIPTION)
    parser.prog, parser.usage = "velocirl bench history", "velocirl bench history [NAME] [OPTIONS]"
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="A benchmark or a category (default: a table of all benchmarks)"
    )
    parser.add_argument("--peers", action="store_true", help="Also show the results of peers")
    parser.add_argument(
        "--last",
        type=whole_number,
        metavar="N",
        help="Show only the last N runs; changes of level are still looked for in all of them",
    )
    parser.add_argument("--quick", action="store_true", help="Include runs made with --quick")
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help=f"Show machines whose description contains this, or {EVERY_MACHINE} of them (default: this machine)",
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="Read this history instead of your own")
    parser.add_argument("--png", type=Path, metavar="FILE", help="Also draw the trends in this image file")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    return parser


def _machines(history: History, word: str | None) -> list[Identity]:
    """Return the chosen machines: this one, all, or those whose description contains a word."""
    known = history.machines()
    if word is None:
        return [history.here()]
    if word == EVERY_MACHINE:
        return known
    meant = [machine for machine in known if word.lower() in describe(machine).lower()]
    if not meant:
        names = [describe(machine) for machine in known]
        raise ValueError(f"the history has no machine {word!r}{nearest(word, names)} (or --machine {EVERY_MACHINE})")
    return meant


def _trends(history: History, machines: list[Identity], given: dict[str, Any]) -> list[Trend]:
    """Return the trends of the named benchmarks: of every implementation of ours, or of peers too.

    Without a name or --peers, returns only the first implementation of each benchmark.
    """
    quick, name, peers = "quick" in given, given.get("name"), "peers" in given
    known = [(machine, *one) for machine in machines for one in history.benchmarks(machine, quick=quick).items()]
    chosen = [(machine, one) for machine, one, category in known if name in (None, one, category)]
    if known and not chosen:
        names = list(dict.fromkeys(word for _, one, category in known for word in (one, category)))
        raise ValueError(f"the history has no benchmark and no category {name!r}{nearest(str(name), names)}")
    found = []
    for machine, benchmark in chosen:
        contestants = history.contestants(benchmark, machine, quick=quick, peers=peers)
        for contestant in contestants if name is not None or peers else contestants[:1]:
            one = trend(history, benchmark, contestant, machine=machine, quick=quick, last=given.get("last"))
            found.append(one)
    return found


def _say_nothing(console: Console, history: History) -> None:
    """Print why there is nothing to show, and what to do about it."""
    others = [describe(machine) for machine in history.machines() if machine != history.here()]
    quick = sum(run.quick and run.machine == history.here() for run in history.runs)
    lines = [f"the history {history.path} has no thorough run of this machine yet: {BEGIN_ONE}"]
    if quick:
        lines.append(f"it has {quick} with --quick: velocirl bench history --quick")
    if others:
        lines.append(f"it has runs of {'; '.join(others)}: velocirl bench history --machine {EVERY_MACHINE}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _show_table(console: Console, trends: list[Trend]) -> None:
    """Print a line for each benchmark, by machine."""
    from rich.markup import escape

    from velocirl.bench.reports.terminal import new_table

    for machine in dict.fromkeys(one.machine for one in trends):
        console.print(describe(machine), style="bold", markup=False)
        table = new_table(console)
        for heading in ("category", "benchmark", "contestant"):
            table.add_column(heading)
        table.add_column("runs", justify="right")
        table.add_column("first", no_wrap=True)
        table.add_column("last", no_wrap=True)
        table.add_column("latest", justify="right", no_wrap=True)
        table.add_column("last change")
        for one in trends:
            if one.machine == machine:
                first, last = one.points[0], one.points[-1]
                words = (one.category, one.benchmark, one.contestant, str(len(one.points)))
                days, figure = (say_day(first), say_day(last)), escape(one.unit.say(last.median))
                style = "" if not one.changes else "red" if one.changes[-1].worse else "green"
                change = escape(say_last_change(one))
                table.add_row(*map(escape, words), *days, figure, f"[{style}]{change}[/]" if style else change)
        console.print(table)


def _show_trend(console: Console, one: Trend) -> None:
    """Print the curve of an implementation, and its changes in words."""
    from velocirl.cli.bench.history_plot import plot_lines

    last = one.points[-1]
    console.print(f"{one.benchmark}, {one.contestant}", style="bold", markup=False)
    console.print(describe(one.machine), style="dim", markup=False, soft_wrap=True)
    better = "more" if one.unit.more_is_better else "less"
    partial = sum(point.interrupted or not point.run.complete for point in one.points)
    count = len(one.points)
    facts = [
        f"{count} {'run' if count == 1 else 'runs'} from {say_day(one.points[0])} to {say_day(last)}",
        f"the latest: {one.unit.say(last.median)} ({one.unit.say_interval(last.estimate)}), {better} is better",
        *([f"{partial} of interrupted runs"] if partial else []),
    ]
    console.print("; ".join(facts), markup=False, soft_wrap=True)
    if console.is_terminal:
        for line in plot_lines(one, min(console.width, MOST_WIDTH), PLOT_HEIGHT, console.options.ascii_only):
            console.print(line, markup=False, no_wrap=True)
    else:
        for number, point in enumerate(one.points, 1):
            figure = f"{one.unit.say(point.median)} ({one.unit.say_interval(point.estimate)})"
            console.print(
                f"run {number}  {point.run.started}  {point.run.commit or 'no commit'}  {figure}", markup=False
            )
    for change in one.changes:
        console.print(say_change(one, change), style="red" if change.worse else "green", markup=False, soft_wrap=True)
    if not one.changes:
        console.print(one.note or "no change of level", style="dim", markup=False)
    console.print()
