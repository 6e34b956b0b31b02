"""Report of a run as a section of a Markdown file that may hold other text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from velocirl.bench.files import read_marked, with_section, write_whole
from velocirl.bench.machine.facts import BUSY_FROM, Machine
from velocirl.bench.reports.absent import NO_TIME, absences, is_absent
from velocirl.bench.reports.kpis import readings
from velocirl.bench.reports.recommendations import recommend
from velocirl.bench.reports.roofline import share_in
from velocirl.bench.results import Report, Result
from velocirl.bench.scaling import say_efficiency
from velocirl.bench.statistics import CONFIDENCE, NOISY_FROM

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
GPU_BEGIN, GPU_END = "<!-- gpu-bench:begin -->", "<!-- gpu-bench:end -->"
OPENING = re.compile(r"<(?=[A-Za-z/!?])")  # start of a tag or a comment
TITLE = "Benchmarks"


def place(machine: Machine) -> tuple[str, str]:
    """Return the markers of the section for this machine: machines with a GPU have their own section."""
    return (GPU_BEGIN, GPU_END) if machine.gpu else (BEGIN, END)


def write_section(path: Path, report: Report, together: str = "") -> None:
    """Write the report between the markers of the file; everything outside them is unchanged.

    `together` precedes it: a comment that names another file written by the same run.
    """
    begin, end = place(report.machine)
    text = with_section(read_marked(path, begin, end, TITLE), begin, end, f"{together}\n{section(report)}")
    write_whole(path, text)


def section(report: Report) -> str:
    """Format the whole run: circumstances, key figures, all targets, each benchmark, recommendations."""
    lines = ["## Measured by `velocirl bench`", "", *_circumstances(report)]
    lines += ["", "### Key figures", "", *_key_figures(report), "", "### Targets", "", *_targets(report)]
    for result in report.results:
        if not is_absent(result):
            lines += _benchmark(report, result)
    found = recommend(report)
    if found:
        lines += ["", "### What to do next", ""]
        lines += [f"- {one_line(one.text)} ({one_line(one.measurement)})" for one in found]
    return "\n".join(lines)


def _circumstances(report: Report) -> list[str]:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    gpu = f", {machine.gpu}" if machine.gpu else ""
    facts = {
        "Command": f"`{report.command}`, {report.started}",
        "Machine": f"{machine.processor}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB{gpu},"
        f" {machine.system}, load average {machine.load:.2f} before the run",
        "Versions": versions,
        "Commit": machine.commit,
    }
    warnings = [] if report.complete else ["only a part of the run: it was interrupted"]
    return [
        *(f"- {name}: {one_line(fact)}" for name, fact in facts.items() if fact),
        "",
        f"Contestants of a table took turns in the same run. Figures are medians of samples of about"
        f" {report.settings.sample_seconds:g} s (or one call), with {CONFIDENCE:.0%} bootstrap intervals; a ratio or a"
        " difference is taken in every round, so that what slowed the whole machine cancels. The spread is the"
        " interquartile range over the median. A target is met or missed where the whole interval is on that side of"
        f" it, else undecided; where figures are noisy, which is a spread above {NOISY_FROM:.0%}, or the machine was"
        f" busy, which is a load average above {BUSY_FROM:g} per core before the run, it is met if every round reached"
        " it, else undecided.",
        *_warned([*warnings, *machine.warnings]),
    ]


def _key_figures(report: Report) -> list[str]:
    rows = [
        (
            f"{reading.indicator.name}, {reading.indicator.what}",
            f"{reading.says_measured} ({reading.benchmark})" if reading.estimate else "",
            reading.says_target,
            reading.says_alert,
            f"**{reading.status}**" if reading.estimate else reading.status,
        )
        for reading in readings(report)
    ]
    return table(("figure", "measured", "target", "alert", ""), rows, "lrrrl")


def _targets(report: Report) -> list[str]:
    rows = []
    for result in report.results:
        for finding in () if is_absent(result) else result.findings:
            found = finding.estimate
            measured, interval = (
                (finding.unit.say(found.median), finding.unit.say_interval(found)) if found else ("", "")
            )
            verdict = f"**{finding.verdict}**" if finding.verdict else ""
            rows.append((result.title, finding.statement, finding.says_target, measured, interval, verdict))
    absent = {**absences(report.results), **({NO_TIME: report.left_out} if report.left_out else {})}
    missing = [f"{', '.join(names)}: {reason}" for reason, names in absent.items()]
    return [
        *table(("benchmark", "figure", "target", "measured", "interval", "verdict"), rows, "lllrrl"),
        *([f"\nNot measured here: {one_line('. '.join(missing))}."] if missing else []),
        *(f"\n> **Error** in {one_line(result.name)}: {one_line(result.error)}" for result in report.failures),
    ]


def _benchmark(report: Report, result: Result) -> list[str]:
    return [
        *("", f"### {one_line(result.title)}", ""),
        *(f"`velocirl bench {one_line(result.name)}`", ""),
        *([one_line(result.notes), ""] if result.notes else []),
        *([f"> **Error:** {one_line(result.error)}", ""] if result.error else []),
        *(_contestants(report, result) if result.contestants else []),
        *_warned(result.warnings),
    ]


def _contestants(report: Report, result: Result) -> list[str]:
    """Format implementations, with efficiencies if compared by workers and fractions of the limit if known."""
    shares = [share_in(result, one, report.peaks) for one in result.contestants]
    efficiencies = [say_efficiency(result, one) for one in result.contestants]
    limited, scaled = any(shares), any(efficiencies)
    rows = []
    for one, share, efficiency in zip(result.contestants, shares, efficiencies, strict=True):
        found = one.estimate
        more = (efficiency,) if scaled else ()
        more += (f"{share.of_peak:.0%} of {share.bound}" if share else "",) if limited else ()
        if found is None:
            rows.append((one.name, one.unavailable, "", "", "", *more))
        else:
            interval, samples = result.unit.say_interval(found), f"{len(one.samples)} x {one.iterations:,} calls"
            rows.append((one.name, result.unit.say(found.median), interval, f"{one.spread:.1%}", samples, *more))
    extra = (*(("efficiency",) if scaled else ()), *(("of the limit",) if limited else ()))
    return table(("", "median", "interval", "spread", "samples", *extra), rows, "lrrrr" + "r" * len(extra))


def _warned(warnings: Iterable[str]) -> list[str]:
    return [f"\n> **Warning:** {one_line(warning)}" for warning in warnings]


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], alignments: str) -> list[str]:
    """Format the lines of a table; `alignments` has one letter per column, r for right-aligned."""
    marks = ["---:" if alignment == "r" else "---" for alignment in alignments]
    written = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (headings, marks, *written)]


def one_line(text: str) -> str:
    """Return the text in one line that cannot open an HTML tag: no foreign comment can end this section."""
    return OPENING.sub("&lt;", " ".join(text.split()))
