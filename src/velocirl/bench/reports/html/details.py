"""Section with full details per benchmark: table, targets, notes, warnings, and each sample as a dot."""

from __future__ import annotations

import math
from statistics import median

from velocirl.bench.reports.absent import is_absent, missing
from velocirl.bench.reports.html.svg import strip
from velocirl.bench.reports.html.words import VERDICTS, share_note
from velocirl.bench.results import Finding, Measured, Report, Result
from velocirl.bench.scaling import say_efficiency
from velocirl.monitor.markup import Markup, joined, pill, table, tag
from velocirl.monitor.pages.words import section, with_code
from velocirl.monitor.scales import Scale

LEAST = 0.02  # minimum half-range of the plot: samples that differ by less look alike


def detail_section(report: Report) -> Markup:
    """Build one block per benchmark, and a line of those not measured."""
    left_out = _left_out(report)
    told = [result for result in report.results if not is_absent(result)]
    if not told:
        return section("benchmarks", "Every benchmark", "Nothing was measured.", *left_out)
    lead = "Raw spread and all samples. Contestants of a table took turns in the same run."
    find = tag(
        "p",
        tag("label", "Show ", tag("input", type="search", placeholder="name or category", id="find")),
        class_="find",
        hidden=True,
    )
    blocks = (_block(report, result) for result in told)
    return section("benchmarks", "Every benchmark", lead, find, *blocks, *left_out)


def _left_out(report: Report) -> list[Markup]:
    reasons = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in missing(report).items())
    return [tag("p", f"Not measured: {reasons}.", class_="absent")] if reasons else []


def _block(report: Report, result: Result) -> Markup:
    name = joined(with_code(result.title), tag("small", f" {result.name}, {result.category}, {result.seconds:.0f} s"))
    parts = [tag("h3", name)]
    if result.error:
        parts.append(tag("p", tag("b", "Ended by an error: "), result.error, class_="note bad"))
    if result.notes:
        parts.append(tag("p", with_code(result.notes), class_="notes"))
    parts += [tag("p", warning, class_="note fair") for warning in result.warnings]
    measured = [one for one in result.contestants if one.samples]
    if measured:
        parts.append(_contestants(report, result, measured))
    findings = [finding for finding in result.findings if finding.estimate is not None]
    if findings:
        parts.append(_findings(findings))
    return tag(
        "article", *parts, class_="card block", data_find=f"{result.name} {result.category} {result.title}".lower()
    )


def _contestants(report: Report, result: Result, measured: list[Measured]) -> Markup:
    """Build the table; samples are drawn as relative deviations from their median, so that spreads are comparable."""
    farthest = max(abs(share) for one in measured for share in deviations(one))
    scale = Scale(-max(farthest, LEAST), max(farthest, LEAST), 1.0, 99.0)
    limits = [share_note(report, result, one) for one in measured]
    known = {
        "efficiency": [say_efficiency(result, one) for one in measured],
        "of the limit": [limit.partition(" ")[0] for limit in limits],
    }
    extra = {heading: cells for heading, cells in known.items() if any(cells)}
    rows = [_row(result, one, [cells[place] for cells in extra.values()], scale) for place, one in enumerate(measured)]
    columns = ["median", "95% interval", "spread", *extra, "samples"]
    headings = ["contestant", *columns, f"each, within {scale.high:.0%} of the median"]
    return table(headings, rows, numeric=set(range(1, len(columns) + 1)), class_="sortable contestants")


def deviations(one: Measured) -> list[float]:
    """Compute each sample's deviation from the median, as a fraction of the median."""
    middle = median(one.samples)
    shares = [sample / middle - 1.0 if middle else 0.0 for sample in one.samples]
    return [share if math.isfinite(share) else 0.0 for share in shares]


def _row(result: Result, one: Measured, more: list[str], scale: Scale) -> list[str]:
    found = one.estimate
    assert found is not None  # noqa: S101 - for the type checker: there are samples
    name = joined(one.name, tag("small", " peer")) if one.peer else one.name
    spread = pill(f"{one.spread:.1%}", "fair") if one.noisy else f"{one.spread:.1%}"
    figures = [tag("b", result.unit.say(found.median)), result.unit.say_interval(found), spread, *more]
    drawing = strip(f"samples of {one.name}", deviations(one), scale)
    return [name, *figures, f"{len(one.samples)} x {one.iterations:,}", drawing]


def _findings(findings: list[Finding]) -> Markup:
    rows = []
    for finding in findings:
        found = finding.estimate
        measured, interval = (finding.unit.say(found.median), finding.unit.say_interval(found)) if found else ("", "")
        verdict = pill(finding.verdict, VERDICTS.get(finding.verdict, "plain")) if finding.verdict else ""
        rows.append([finding.statement, measured, interval, finding.says_target, verdict])
    return table(["claim", "measured", "95% interval", "target", "verdict"], rows, numeric={1, 2}, class_="findings")
