"""`velocirl bench`: how fast it is here, beside its peers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from velocirl.bench.files import require_writable, write_whole
from velocirl.bench.machine import this_machine
from velocirl.bench.markdown import read_or_new, write_section
from velocirl.bench.measuring import QUICK, THOROUGH
from velocirl.bench.registry import Benchmark, find_benchmarks
from velocirl.bench.session import run_benchmarks
from velocirl.bench.terminal import TerminalWatcher, new_table, show_machine, show_summary
from velocirl.cli.console import make_console
from velocirl.cli.parsing import Parser


def bench(arguments: Sequence[str]) -> None:
    """Measure speed, start-up and memory, in turns with the peers that are installed."""
    given = _parser().parse(arguments)
    categories, quick = tuple(given.get("categories", ())), "quick" in given
    json, markdown = given.get("json"), given.get("markdown")
    benchmarks = find_benchmarks(categories)
    if "list" in given:
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


def _parser() -> Parser:
    parser = Parser(
        "bench [CATEGORY ...]", "Measure speed, start-up and memory, in turns with the peers that are installed."
    )
    parser.add_argument(
        "categories", nargs="*", metavar="CATEGORY", help="what to measure (see --list); everything when left out"
    )
    parser.add_argument("--list", action="store_true", help="say which benchmarks there are, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: a glance, not a result")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write everything, raw samples included, to this file"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="put the tables into this file, between bench:begin and bench:end"
    )
    return parser


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
