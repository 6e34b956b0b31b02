"""Formatting of trends, as text and as plain values for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from velocirl.bench.history.rows import Point, describe
from velocirl.bench.history.trends import ChangePoint, Trend

CHANGED = " with changes"  # appended by bench.machine to a commit with uncommitted changes
COMMIT_DIGITS = 10
NO_COMMIT = "an installed package"


def say_commit(commit: str) -> str:
    """Shorten a commit, marked if files were changed since."""
    digits = commit.removesuffix(CHANGED)
    return (digits[:COMMIT_DIGITS] + commit[len(digits) :]) or NO_COMMIT


def say_day(point: Point) -> str:
    """Return the date of a result."""
    return point.run.started[:10]


def say_ratio(change: ChangePoint) -> str:
    """Format a change by the ratio of its levels: 12.0% worse."""
    return f"{abs(change.ratio.median - 1.0):.1%} {'worse' if change.worse else 'better'}"


def say_last_change(trend: Trend) -> str:
    """Format the last change of a trend for a table."""
    if not trend.changes:
        return trend.note and "too few runs" if "too few" in trend.note else trend.note or "none"
    last = trend.changes[-1]
    return f"{say_ratio(last)} since {say_commit(last.began)} ({last.started[:10]})"


def say_change(trend: Trend, change: ChangePoint) -> str:
    """Format a change as a sentence: its size, its interval, and the commit with which it began."""
    ratio = change.ratio
    beside = " beside the fixed work" if trend.relative else ""
    sure = f"{ratio.median:.3f}x, 95% interval {ratio.low:.3f} to {ratio.high:.3f}{beside}, p = {change.p_value:.3f}"
    began, before = say_commit(change.began), say_commit(change.before)
    if change.began == change.before:
        where = f"both it and the last run before are of {began}"
    else:
        where = f"it began with {began}, the last run before is of {before}"
    versions = f"; also new: {', '.join(change.versions)}" if change.versions else ""
    return f"{say_ratio(change)} from run {change.place + 1} on, {change.started[:10]} ({sure}): {where}{versions}"


def as_plain(trend: Trend) -> dict[str, Any]:
    """Convert a trend to JSON values."""
    return {
        "benchmark": trend.benchmark,
        "category": trend.category,
        "contestant": trend.contestant,
        "peer": trend.peer,
        "machine": describe(trend.machine),
        "unit": trend.unit.name,
        "more_is_better": trend.unit.more_is_better,
        "relative": trend.relative,
        "note": trend.note,
        "points": [_plain_point(point) for point in trend.points],
        "changes": [asdict(change) for change in trend.changes],
    }


def _plain_point(point: Point) -> dict[str, Any]:
    run = point.run
    return {
        **{name: getattr(run, name) for name in ("started", "commit", "complete", "quick", "load")},
        **{name: getattr(point, name) for name in ("median", "low", "high", "spread", "samples", "reference")},
        **{name: getattr(point, name) for name in ("seconds", "interrupted")},
    }
