"""`velocirl bench`: how fast it is here, beside its peers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import tyro

from velocirl.bench.files import require_writable, write_whole
from velocirl.bench.machine import this_machine
from velocirl.bench.markdown import read_or_new, write_section
from velocirl.bench.measuring import QUICK, THOROUGH
from velocirl.bench.registry import Benchmark, find_benchmarks
from velocirl.bench.session import run_benchmarks
from velocirl.bench.terminal import TerminalWatcher, new_table, show_machine, show_summary
from velocirl.cli.console import make_console

CATEGORY = tyro.conf.arg(metavar="[CATEGORY ...]", help_behavior_hint="")
FILE = tyro.conf.arg(metavar="FILE", help_behavior_hint="")


def bench(
    categories: Annotated[tuple[str, ...], tyro.conf.Positional, CATEGORY] = (),
    list_only: Annotated[bool, tyro.conf.arg(name="list", help_behavior_hint="")] = False,
    quick: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False,
    json: Annotated[Path | None, FILE] = None,
    markdown: Annotated[Path | None, FILE] = None,
) -> None:
    """Measure speed, start-up and memory, in turns with the peers that are installed.

    Args:
        categories: What to measure (see --list); everything when left out.
        list_only: Say which benchmarks there are, and measure nothing.
        quick: Fewer and shorter samples: a glance, not a result.
        json: Write everything, raw samples included, to this file.
        markdown: Put the tables into this file, between its markers bench:begin and bench:end.
    """
    benchmarks = find_benchmarks(categories)
    if list_only:
        _show_list(benchmarks)
        return
    for path in (json, markdown):
        if path is not None:
            require_writable(path)
    if markdown is not None:
        read_or_new(markdown)  # so that unclear markers are refused now

    console, machine = make_console(), this_machine()
    show_machine(console, machine)
    command = _command(categories, {"--quick": quick, "--json": json, "--markdown": markdown})
    with TerminalWatcher(console, len(benchmarks)) as watcher:
        report = run_benchmarks(benchmarks, QUICK if quick else THOROUGH, machine, watcher, command)
    show_summary(console, report)
    if json is not None:
        write_whole(json, report.as_json())
    if markdown is not None:
        write_section(markdown, report)


def _show_list(benchmarks: list[Benchmark]) -> None:
    console = make_console()
    table = new_table(console)
    for heading in ("category", "benchmark", "what is measured"):
        table.add_column(heading)
    for benchmark in benchmarks:
        table.add_row(benchmark.category, benchmark.name, benchmark.title)
    console.print(table)


def _command(categories: tuple[str, ...], options: dict[str, bool | Path | None]) -> str:
    given = [(name, value) for name, value in options.items() if value not in (False, None)]
    words = [word for name, value in given for word in ((name,) if value is True else (name, str(value)))]
    return shlex.join(["velocirl", "bench", *categories, *words])
