"""`velocirl runs`: list of the runs and their status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from velocirl.cli.parsing import Parser
from velocirl.engine.disk.confined import NotPlainFileError
from velocirl.monitor.words import plural, printable
from velocirl.runs.directory import DamagedRunError, Run, RunNotFoundError, RunSummary, list_runs
from velocirl.runs.groups import find_group, is_group, open_group, status_of
from velocirl.runs.metrics import RETURN, STEP, DamagedMetricsError
from velocirl.runs.seeds import summarise

COLUMNS = ("name", "environment", "algorithm", "status", "steps", "return", "age", "path")
COLORS = {"running": "cyan", "finished": "green", "interrupted": "yellow", "stopped": "yellow"}
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def runs(arguments: Sequence[str]) -> None:
    """List the existing runs, newest first; a group is one entry."""
    parser = Parser("runs [GROUP]", "List your runs, the newest first; a group of runs is one entry.")
    parser.add_argument("group", nargs="?", metavar="GROUP", help="List the runs of this group (default: all runs)")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    given = parser.parse(arguments)
    found = _find(given.get("group"))
    if "json" in given:
        print(json.dumps(found, indent=1))
        return
    from velocirl.bench.reports.terminal import new_table
    from velocirl.monitor.console import make_console

    console = make_console()
    if not found:
        console.print("there are no runs yet: velocirl train CartPole-v1")
        return
    table = new_table(console)
    shown = [name for name in COLUMNS if name != "path" or not console.is_terminal or console.width >= 120]
    for name in shown:
        table.add_column(
            name, justify="right" if name in ("steps", "return", "age") else "left", no_wrap=name != "path"
        )
    for run in found:
        cells = {
            **{name: _shown(run[name] or "") for name in ("name", "environment", "path")},
            "algorithm": _shown(
                f"{run['algorithm']}, {plural(len(run['seeds']), 'seed')}" if run["seeds"] else run["algorithm"] or ""
            ),
            "status": f"[{COLORS.get(run['status'], 'red')}]{run['status']}[/]",
            "steps": "" if run["steps"] is None else f"{run['steps']:,}",
            "return": "" if run["return"] is None else f"{run['return']:,.1f}",
            "age": "" if run["created"] is None else say_age(datetime.fromisoformat(run["created"])),
        }
        table.add_row(*(cells[name] for name in shown))
    console.print(table)
    for run in found:
        if run["problem"]:
            console.print(f"[yellow]warning: {_shown(run['problem'])}[/]", soft_wrap=True)


def _shown(text: str) -> str:
    """Escape untrusted text for one line of a table."""
    from rich.markup import escape

    return escape(printable(text))


def say_age(created: datetime) -> str:
    """Format the time since a date: 12 s, 5 min, 3 h, 2 d."""
    seconds = max((datetime.now(UTC) - created).total_seconds(), 0.0)
    return next((f"{seconds // unit:.0f} {name}" for unit, name in UNITS if seconds >= unit), f"{seconds:.0f} s")


def _find(name: str | None) -> list[dict[str, Any]]:
    """Return the entries of the list: runs, and groups in place of their newest run; or the runs of one group."""
    if name is not None:
        group = find_group(name)
        if group is None:
            raise RunNotFoundError(f"there is no group of runs {name!r}: velocirl runs lists those there are")
        return _in_order([run for run in list_runs() if run.path.parent == group.path])
    within: dict[Path, list[RunSummary]] = {}
    for run in list_runs():
        within.setdefault(run.path.parent if is_group(run.path.parent) else run.path, []).append(run)
    return [_grouped(path, some) if is_group(path) else _described(some[0]) for path, some in within.items()]


def _grouped(path: Path, runs: list[RunSummary]) -> dict[str, Any]:
    """Describe a group as one entry: its mean return, the total steps, and its seeds."""
    seeds = _in_order(runs)
    try:
        group = open_group(path)
        results = group.results()
    except (DamagedRunError, DamagedMetricsError, NotPlainFileError) as error:
        return {**seeds[0], "name": path.name, "path": str(path), "status": "damaged", "problem": str(error)}
    summary = summarise("", "", results, 0.0)
    plan = group.description.plan
    return {
        "name": path.name,
        "path": str(path),
        "environment": group.description.environment,
        "algorithm": group.description.algorithm,
        "seed": group.description.seeds[0],
        "status": status_of(results),
        "steps": summary.steps,
        "total_steps": plan.total_steps * len(group.description.seeds),
        "return": summary.mean,
        "created": group.description.created.isoformat(),
        "problem": "",
        "seeds": seeds,
    }


def _in_order(runs: list[RunSummary]) -> list[dict[str, Any]]:
    """Describe the runs of a group, sorted by seed."""
    return sorted(map(_described, runs), key=lambda run: -1 if run["seed"] is None else run["seed"])


def _described(summary: RunSummary) -> dict[str, Any]:
    description, problem = summary.description, summary.problem
    last = {}
    if description is not None:
        try:
            rows = Run(summary.path, description).rows()
            last = rows[-1] if rows else {}
        except DamagedMetricsError as error:
            problem = str(error)
    return {
        "name": summary.name,
        "path": str(summary.path),
        "environment": description and description.environment,
        "algorithm": description and description.algorithm,
        "seed": description and description.seed,
        "status": summary.status,
        "steps": last.get(STEP),
        "total_steps": description and description.plan and description.plan.total_steps,
        "return": last.get(RETURN),
        "created": description and description.created.isoformat(),
        "problem": problem,
        "seeds": [],
    }
