"""HTML report of a run: one file with plots that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from velocirl.bench.files import write_whole
from velocirl.bench.history.runs import History
from velocirl.bench.regression import Change
from velocirl.bench.reports.html.advice import advice_section
from velocirl.bench.reports.html.changes import change_section
from velocirl.bench.reports.html.details import detail_section
from velocirl.bench.reports.html.key_figures import key_figure_section
from velocirl.bench.reports.html.limits import limit_section
from velocirl.bench.reports.html.peers import peer_section
from velocirl.bench.reports.html.phases import phase_section
from velocirl.bench.reports.html.summary import summary_head
from velocirl.bench.reports.html.throughput import category_section
from velocirl.bench.reports.html.trends import trend_section
from velocirl.bench.results import Report
from velocirl.monitor.pages.page import whole_page


def write_html(
    path: Path,
    report: Report,
    *,
    changes: Sequence[Change] = (),
    baseline: Report | None = None,
    history: History | None = None,
) -> None:
    """Write the report as one self-contained file, atomically."""
    write_whole(path, html_report(report, changes=changes, baseline=baseline, history=history))


def html_report(
    report: Report,
    *,
    changes: Sequence[Change] = (),
    baseline: Report | None = None,
    history: History | None = None,
) -> str:
    """Build the page. `changes` are relative to `baseline`; `history` adds trends of the reported benchmarks."""
    compared = bool(changes) or baseline is not None
    parts = {
        "key-figures": ("Key figures", key_figure_section(report)),
        "changes": ("Since the baseline", change_section(changes, baseline)),
        "next": ("What to do next", advice_section(report, changes)),
        "categories": ("By category", category_section(report)),
        "limits": ("Limits", limit_section(report)),
        "peers": ("Beside others", peer_section(report)),
        "trends": ("Trends", trend_section(report, history)),
        "phases": ("Phases", phase_section(report)),
        "benchmarks": ("Every benchmark", detail_section(report)),
    }
    return whole_page(f"velocirl bench, {report.started}", parts, summary_head(report, changes, compared=compared))
