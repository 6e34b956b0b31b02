"""`velocirl bench`: speed on this machine compared with peer libraries and with earlier runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from velocirl.bench.again import compare_and_confirm, measure_twice
from velocirl.bench.baselines import check_baseline, load_baseline, save_baseline
from velocirl.bench.files import require_writable, write_whole
from velocirl.bench.history.runs import History
from velocirl.bench.machine.facts import Machine, this_machine
from velocirl.bench.machine.peak_measuring import measure_peaks
from velocirl.bench.measuring import QUICK, THOROUGH
from velocirl.bench.quiet import disturbed
from velocirl.bench.reading import read_report
from velocirl.bench.registry import CATEGORIES, Benchmark, at_a_glance, find_benchmarks
from velocirl.bench.regression import Compared, Thresholds
from velocirl.bench.reports.documents import check_documents, write_documents
from velocirl.bench.reports.terminal import TerminalWatcher, new_table, show_machine, show_summary, show_warnings
from velocirl.bench.reports.terminal_compared import show_compared
from velocirl.bench.results import Report
from velocirl.bench.session import run_benchmarks
from velocirl.cli.bench.history import bench_history
from velocirl.cli.bench.options import bench_parser, spelled
from velocirl.engine.disk.directories import data_directory
from velocirl.monitor.console import make_console

FAILED, INTERRUPTED = 1, 130
GLANCE_SECONDS = 50.0  # for measuring, so that the whole command takes at most a minute
HISTORY = "history"
DOCUMENTS = ("markdown", "speeds", "html")
KNOWN = ("words", "from", *DOCUMENTS)


def bench(arguments: Sequence[str]) -> None:
    """Measure speed, start-up and memory; with `history` as the first word, show earlier measurements."""
    if list(arguments[:1]) == [HISTORY]:
        bench_history(arguments[1:])
        return
    given = bench_parser().parse(arguments)
    if "from" in given:
        _write_again(given)
        return
    benchmarks = find_benchmarks(given.get("words", ()), everything="all" in given)
    if "list" in given:
        _show_list(benchmarks)
        return
    # A user who names benchmarks wants exactly those; the quick pass is for the standard set.
    glance = "quick" in given and "all" not in given and not given.get("words")
    machine = this_machine()
    benchmarks, left_out = at_a_glance(benchmarks, gpu=bool(machine.gpu)) if glance else (benchmarks, [])
    thresholds = _thresholds(given)
    baseline = load_baseline(given["compare"]) if "compare" in given else None
    _check_places(given, machine)
    history = None if "no_history" in given else History.open()

    console = make_console()
    show_machine(console, machine)
    settings, peers = (QUICK if "quick" in given else THOROUGH), "peers" in given
    with TerminalWatcher(console, len(benchmarks) * (2 if "save" in given else 1)) as watcher:
        report = run_benchmarks(
            benchmarks,
            settings,
            machine,
            watcher,
            spelled(given),
            peers=peers,
            peaks=None if glance else watcher.remembering(measure_peaks),
            seconds=GLANCE_SECONDS if glance else None,
            left_out=left_out,
        )
        if "save" in given:
            report = measure_twice(report, benchmarks, watcher, peers=peers)
        compared = None
        if baseline is not None:
            report, compared = compare_and_confirm(baseline, report, benchmarks, thresholds, watcher, peers=peers)
    show_summary(console, report)
    if compared is not None:
        show_compared(console, compared, given["compare"])
    fault = None if history is None else _remember(history, report)
    _write(given, report, compared, baseline, history)
    if fault is not None:  # raised last, so that nothing else of the run is lost
        raise fault
    _end(given, report, compared)


def _write_again(given: dict[str, Any]) -> None:
    """Write the documents of an earlier run."""
    others = [*given.get("words", ()), *(f"--{name.replace('_', '-')}" for name in given if name not in KNOWN)]
    if others or not any(name in given for name in DOCUMENTS):
        asked = f"leave out {', '.join(others)}" if others else "give at least one of these options"
        raise ValueError(f"--from measures nothing and writes --markdown, --speeds and --html: {asked}")
    report = read_report(given["from"])
    _check_places(given, report.machine)
    if not report.complete:
        raise ValueError(f"{given['from']} is of an interrupted run")
    _write(given, report, None, None, None)


def _remember(history: History, report: Report) -> Exception | None:
    """Add the run to the history; returns the error, if any."""
    try:
        history.add(report)
    except (OSError, ValueError) as error:
        return error
    return None


def _write(
    given: dict[str, Any], report: Report, compared: Compared | None, baseline: Report | None, history: History | None
) -> None:
    """Write all requested files. An interrupted run does not replace the results of a complete one."""
    console = make_console()
    if "json" in given:
        write_whole(given["json"], report.as_json(**({} if compared is None else {"compared": asdict(compared)})))
    if "html" in given:
        from velocirl.bench.reports.html import write_html

        changes = () if compared is None else compared.changes
        write_html(given["html"], report, changes=changes, baseline=baseline, history=history)
        console.print(f"report   {given['html'].resolve()}", markup=False)
    if not report.complete:
        kept = ""
        if "json" not in given:
            path = data_directory() / "bench" / "interrupted.json"
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, report.as_json())
            kept = f"; what was measured is in {path}"
        for option in ("markdown", "speeds", "save"):
            if option in given:
                console.print(f"interrupted: {given[option]} stays as it was{kept}", markup=False, soft_wrap=True)
        return
    unwritten = write_documents(report, given.get("markdown"), given.get("speeds"))
    if unwritten:
        console.print(unwritten, markup=False, soft_wrap=True)
    if "save" in given:
        path = save_baseline(given["save"], report)
        console.print(f"baseline {path}", markup=False)
        show_warnings(console, disturbed(report))


def _end(given: dict[str, Any], report: Report, compared: Compared | None) -> None:
    if not report.complete:
        sys.exit(INTERRUPTED)
    regressed = compared is not None and compared.failed and "fail_on_regression" in given
    if report.failures or regressed:
        sys.exit(FAILED)


def _check_places(given: dict[str, Any], machine: Machine) -> None:
    """Raise for files that cannot be written, before measuring."""
    for option in ("json", "markdown", "html", "speeds"):
        if option in given:
            require_writable(given[option])
    if "speeds" in given and "quick" in given:
        raise ValueError("--quick is for a first impression, and --speeds for results: leave one of them out")
    check_documents(machine, given.get("markdown"), given.get("speeds"))
    if "save" in given:
        path = check_baseline(given["save"])
        if path.exists():
            read_report(path)  # raises for another kind of file, which must not be overwritten
    if "fail_on_regression" in given and "compare" not in given:
        raise ValueError("--fail-on-regression needs a baseline: --compare NAME")


def _thresholds(given: dict[str, Any]) -> Thresholds:
    names = {"warn": "warn_at", "fail": "fail_at", "memory": "memory_at"}
    return Thresholds(**{name: given[option] / 100.0 for name, option in names.items() if option in given})


def _show_list(benchmarks: list[Benchmark]) -> None:
    console = make_console()
    table = new_table(console)
    for heading in ("category", "benchmark", "what is measured"):
        table.add_column(heading)
    order = [*CATEGORIES, *(one.category for one in benchmarks)]
    for benchmark in sorted(benchmarks, key=lambda one: order.index(one.category)):
        table.add_row(benchmark.category, benchmark.name, benchmark.title)
    console.print(table)
