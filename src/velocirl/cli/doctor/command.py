"""`velocirl doctor`: state of the installation, and what to install for missing parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape

from velocirl.bench.reports.terminal import new_table
from velocirl.cli.doctor.probes import Finding, Probe, probes
from velocirl.cli.parsing import Parser
from velocirl.monitor.console import make_console

SYMBOLS = {"works": "✓", "missing": "–", "broken": "✗"}  # noqa: RUF001 - a dash as long as the others are wide
ASCII_SYMBOLS = {"works": "+", "missing": "-", "broken": "x"}
COLORS = {"works": "green", "missing": "dim", "broken": "bold red"}
FAILED = 1  # exit code


def doctor(arguments: Sequence[str]) -> None:
    """Print what is installed, works or is missing; exit code 1 if something installed is broken."""
    parser = Parser("doctor", "Say what is installed, what works, and what to install for what is missing.")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument(
        "--distributed", action="store_true", help="Measure the sums over the ranks of mpirun, torchrun or srun instead"
    )
    given = parser.parse(arguments)
    as_json = "json" in given
    if "distributed" in given:
        from velocirl.cli.doctor.distributed import examine_ranks

        examine_ranks(as_json=as_json)
        return
    console = make_console(stderr=as_json)
    looked_at = probes()
    found = examine(looked_at, console)
    if as_json:
        print(json.dumps(_document(looked_at, found), indent=1))
    else:
        _show(console, looked_at, found)
    if any(one.status == "broken" for one in found.values()):
        sys.exit(FAILED)


def examine(looked_at: Sequence[Probe], console: Console) -> dict[str, Finding]:
    """Run the probes and return their findings by name; a failing probe is a finding too."""
    found: dict[str, Finding] = {}
    with console.status("") as status:
        for number, probe in enumerate(looked_at, 1):
            status.update(f"{number} of {len(looked_at)}: {probe.name}")
            try:
                found[probe.name] = probe.look(found)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one is not to hide the others
                message = " ".join(str(error).split()) or type(error).__name__
                found[probe.name] = Finding("broken", message)
    return found


def _document(looked_at: Sequence[Probe], found: dict[str, Finding]) -> dict[str, object]:
    lines = [
        {
            "section": probe.section,
            "name": probe.name,
            "status": (one := found[probe.name]).status,
            "detail": one.detail,
            "advice": one.advice,
            **({"facts": one.facts} if one.facts else {}),
        }
        for probe in looked_at
    ]
    return {"broken": [name for name, one in found.items() if one.status == "broken"], "findings": lines}


def _show(console: Console, looked_at: Sequence[Probe], found: dict[str, Finding]) -> None:
    symbols = ASCII_SYMBOLS if console.options.ascii_only else SYMBOLS
    table = new_table(console)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    if not console.is_terminal:
        table.add_column("what to do")
    for section, some in groupby(looked_at, lambda probe: probe.section):
        table.add_row("", f"[bold]{section}[/]")
        for probe in some:
            one = found[probe.name]
            said = f"[{COLORS[one.status]}]{symbols[one.status]} {one.status}[/]"
            detail, advice = escape(one.detail), escape(one.advice)
            if console.is_terminal:  # without room for another column
                table.add_row(said, escape(probe.name), f"{detail}\n[cyan]{advice}[/]" if advice else detail)
            else:
                table.add_row(said, escape(probe.name), detail, advice)
    console.print(table)
    statuses = [one.status for one in found.values()]
    console.print(", ".join(f"{statuses.count(status)} {_plural(status)}" for status in SYMBOLS if status in statuses))


def _plural(status: str) -> str:
    return "work" if status == "works" else status
