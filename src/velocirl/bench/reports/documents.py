"""Documents of a run: all tables in one file and the table of speeds in another, kept consistent.

If one run has written both, each file names the other, and neither is written without the other from then on.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from velocirl.bench.files import read_marked
from velocirl.bench.machine.facts import Machine
from velocirl.bench.reports import markdown, speeds
from velocirl.bench.results import Report

TOGETHER = re.compile(r"<!-- of the same run as (.+) -->")


def check_documents(machine: Machine, tables: Path | None, table: Path | None) -> None:
    """Raise if a file's markers are ambiguous, or if only one of two linked files is given."""
    for path, other, option, (begin, end), title in (
        (tables, table, "--speeds", markdown.place(machine), markdown.TITLE),
        (table, tables, "--markdown", speeds.place(machine)[:2], speeds.TITLE),
    ):
        if path is None:
            continue
        section = read_marked(path, begin, end, title).partition(begin)[2].partition(end)[0]
        found = TOGETHER.search(section)
        partner = None if found is None else (path.resolve().parent / found[1]).resolve()
        if partner is not None and (other is None or other.resolve() != partner):
            raise ValueError(f"{path} has figures of the same run as {partner}: give {option} {partner} too")


def write_documents(report: Report, tables: Path | None, table: Path | None) -> str:
    """Write the given files; returns the reason if a file is left unchanged."""
    if table is not None and not speeds.measured_speeds(report):
        stay = f"{table} stays as it was" if tables is None else f"{table} and {tables} stay as they were"
        return f"nothing of its table was measured: {stay}"
    if tables is not None:
        markdown.write_section(tables, report, "" if table is None else _names(tables, table))
    if table is not None:
        speeds.write_speeds(table, report, "" if tables is None else _names(table, tables))
    return ""


def _names(path: Path, other: Path) -> str:
    return f"<!-- of the same run as {os.path.relpath(other.resolve(), path.resolve().parent)} -->"
