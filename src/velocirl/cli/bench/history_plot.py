"""A trend drawn with characters: results by run, with marks below changes of level."""

from __future__ import annotations

from velocirl.bench.history.trends import Trend
from velocirl.bench.units import PREFIXES
from velocirl.runs.curves.characters import terminal_plot

COLUMNS_OF_A_RUN = 9  # at most, so that the axis has no labels between runs


def plot_lines(trend: Trend, width: int, height: int, ascii_only: bool) -> list[str]:
    """Return the lines of the plot; empty for a single run."""
    count = len(trend.points)
    if count < 2:
        return []
    factor, prefix = _scale(trend)
    numbers = list(range(1, count + 1))
    figures = [point.median / factor for point in trend.points]
    width = min(width, COLUMNS_OF_A_RUN * (count + 1))
    lines = terminal_plot(numbers, figures, width, height, ascii_only=ascii_only)
    name = trend.unit.template.replace("{number}", "").format(prefix=prefix).strip()
    return [*([name] if name else []), *lines, *_marks(trend, lines[-2], ascii_only)]


def _scale(trend: Trend) -> tuple[float, str]:
    """Return factor and prefix of the unit that suits the largest result."""
    largest = max(abs(point.median) for point in trend.points)
    if "{prefix}" not in trend.unit.template:
        return 1.0, ""
    return next(((factor, prefix) for factor, prefix in PREFIXES if largest >= factor), (1.0, ""))


def _marks(trend: Trend, floor: str, ascii_only: bool) -> list[str]:
    """Return a line of arrows below the first run of each new level."""
    if not trend.changes:
        return []
    margin, count = floor.index("+" if ascii_only else "└") + 1, len(trend.points)
    low = 0 if count > 10 else 1  # the axis begins at 0 where 1 is close to it
    marks = [" "] * len(floor)
    for change in trend.changes:
        place = (change.place + 1 - low) / (count - low)
        marks[margin + round(place * (len(floor) - margin - 1))] = "^" if ascii_only else "▲"
    return ["".join(marks).rstrip()]
