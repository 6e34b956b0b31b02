"""Section of changes since a baseline."""

from __future__ import annotations

from collections.abc import Sequence

from velocirl.bench.regression import Change, Severity
from velocirl.bench.results import Report
from velocirl.monitor.markup import Markup, joined, pill, table, tag
from velocirl.monitor.pages.words import section

KINDS: dict[Severity, str] = {
    "failure": "bad", "warning": "fair", "inconclusive": "plain", "improved": "good", "none": "plain",
}  # fmt: skip


def change_section(changes: Sequence[Change], baseline: Report | None) -> Markup:
    """Build the table of changes, worst first; unchanged values are only counted."""
    if not changes and baseline is None:
        return Markup()
    shown = sorted((one for one in changes if one.severity != "none"), key=_order)
    same = len(changes) - len(shown)
    lead = f"{same} of {len(changes)} figures are as they were, within noise. Above zero is better, whatever the unit."
    if baseline is not None:
        machine, started = baseline.machine, baseline.started.replace("T", " ")
        commit = f", commit {machine.commit}" if machine.commit else ""
        lead = f"Compared with the run of {started} on {machine.processor}{commit}. {lead}"
    if any(one.by == "peers" for one in changes):
        lead += " The baseline is of another machine, so only ratios to peers are compared."
    headings = ["figure", "before", "after", "change", "95% interval", "state"]
    rows = [_row(one) for one in shown]
    body = table(headings, rows, numeric={1, 2, 3, 4}) if rows else ""
    return section("changes", "Since the baseline", lead, body)


def _row(change: Change) -> list[str]:
    before, after = (change.unit.say(one.median) if one else "-" for one in (change.before, change.after))
    name = joined(tag("b", change.benchmark), tag("div", change.contestant, class_="source"))
    state = joined(pill(change.severity, KINDS[change.severity]), tag("div", change.reason, class_="source"))
    ratio = change.ratio
    interval = f"{ratio.low - 1.0:+.1%} to {ratio.high - 1.0:+.1%}"
    return [name, before, after, tag("b", f"{ratio.median - 1.0:+.1%}"), interval, state]


def _order(change: Change) -> tuple[int, float]:
    return list(KINDS).index(change.severity), change.ratio.median
