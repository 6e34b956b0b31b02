"""Formatting of a plot line's last values."""

from __future__ import annotations

from typing import NamedTuple

from velocirl.monitor.words import say_count, say_figure, say_seconds
from velocirl.runs.curves.comparing import By, PlotLine


class End(NamedTuple):
    """The last point of a line; missing values are empty."""

    value: str
    interval: str
    evaluation: str
    where: str  # steps or seconds


def end_of(line: PlotLine, by: By) -> End:
    """Format the end of a line: last value, interval, last evaluation and position."""
    curve, at = line.curve, float(line.curve.x[-1])
    interval = ""
    if curve.low is not None and curve.high is not None:
        interval = f"{say_figure(float(curve.low[-1]))} to {say_figure(float(curve.high[-1]))}"
    evaluation = "" if line.evaluation is None else say_figure(float(line.evaluation.y[-1]))
    where = f"{say_count(at)} steps" if by == "steps" else say_seconds(at)
    return End(say_figure(float(curve.y[-1])), interval, evaluation, where)
