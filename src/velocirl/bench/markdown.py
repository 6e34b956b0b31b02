"""A run as a section of a Markdown file, beside what people wrote there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from velocirl.bench.files import with_section, write_whole
from velocirl.bench.machine import BUSY_FROM
from velocirl.bench.results import Report, Result
from velocirl.bench.statistics import CONFIDENCE, NOISY_FROM

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NEW_FILE = f"# Benchmarks\n\n{BEGIN}\n{END}\n"


def write_section(path: Path, report: Report) -> None:
    """Put the report between the markers of the file; all that stands outside them stays as it is."""
    write_whole(path, with_section(read_or_new(path), BEGIN, END, section(report)))


def read_or_new(path: Path) -> str:
    """The file's text, or that of a new one; refused where the section's place in it is not clear."""
    text = path.read_text(encoding="utf-8") if path.exists() else NEW_FILE
    if BEGIN not in text and END not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n" if text.strip() else NEW_FILE
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{path}: expected one {BEGIN} and after it one {END}, or neither of them")
    return text


def section(report: Report) -> str:
    """The whole run: where and how it was measured, all targets in one table, then each benchmark."""
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    lines = [
        "## Measured by `velocirl bench`",
        "",
        f"- Command: `{report.command}`, {report.started}",
        f"- Machine: {machine.processor}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB,"
        f" {machine.system}, load average {machine.load:.2f} before the run",
        f"- Versions: {versions}",
        *([f"- Commit: {machine.commit}"] if machine.commit else []),
        "",
        f"Contestants of a table took turns in the same run. Figures are medians of samples of about"
        f" {report.settings.sample_seconds:g} s (or one call), with {CONFIDENCE:.0%} bootstrap intervals; a ratio or a"
        " difference is taken in every round, so that what slowed the whole machine cancels. The spread is the"
        " interquartile range over the median. A target is met or missed where the whole interval is on that side of"
        f" it, else undecided; where figures are noisy, which is a spread above {NOISY_FROM:.0%}, or the machine was"
        f" busy, which is a load average above {BUSY_FROM:g} per core before the run, it is met if every round reached"
        " it, else undecided.",
        *(f"\n> **Warning:** {warning}" for warning in machine.warnings),
        "",
        "### Targets",
        "",
        *_targets(report.results),
    ]
    for result in report.results:
        lines += ["", f"### {result.title}", "", *([result.notes, ""] if result.notes else []), *_contestants(result)]
        lines += [f"\n> **Warning:** {warning}" for warning in result.warnings]
    return "\n".join(lines)


def _targets(results: Iterable[Result]) -> list[str]:
    rows = []
    for result in results:
        for finding in result.findings:
            found = finding.estimate
            measured, interval = (
                (finding.unit.say(found.median), finding.unit.say_interval(found)) if found else ("", "")
            )
            verdict = f"**{finding.verdict}**" if finding.verdict else ""
            rows.append((result.title, finding.statement, finding.says_target, measured, interval, verdict))
    return _table(("benchmark", "figure", "target", "measured", "interval", "verdict"), rows, "lllrrl")


def _contestants(result: Result) -> list[str]:
    rows = []
    for one in result.contestants:
        found = one.estimate
        if found is None:
            rows.append((one.name, one.unavailable, "", "", ""))
        else:
            interval, samples = result.unit.say_interval(found), f"{len(one.samples)} x {one.iterations:,} calls"
            rows.append((one.name, result.unit.say(found.median), interval, f"{one.spread:.1%}", samples))
    return _table(("", "median", "interval", "spread", "samples"), rows, "lrrrr")


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]], alignments: str) -> list[str]:
    marks = ["---:" if alignment == "r" else "---" for alignment in alignments]
    return [f"| {' | '.join(cells)} |" for cells in (headings, marks, *rows)]
