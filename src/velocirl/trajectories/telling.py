"""An evaluation of safety as a table of text, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from velocirl.monitor.words import say_figure
from velocirl.trajectories.figures import COST, EXCURSION, LENGTH, RATE, RETURN, SCORE, STOPS, TIME, Estimate

if TYPE_CHECKING:
    from velocirl.trajectories.safety import SafetyEvaluation

SHARES = (RATE, STOPS)  # figures that are shares of all episodes
ORDER = (RETURN, SCORE, "gap", COST, RATE, TIME, EXCURSION, STOPS, LENGTH)


class Row(NamedTuple):
    """One figure of all policies in a scenario."""

    name: str  # for people, with its unit
    cells: list[str]
    figure: str  # as in `figures`


def rows_of(evaluation: SafetyEvaluation, scenario: str) -> Iterator[Row]:
    """The figures of a scenario, in the order in which people ask for them."""
    judged = evaluation.scenarios[scenario]
    known = list(dict.fromkeys(name for one in judged.values() for name in one.figures))
    for figure in sorted(known, key=lambda name: (ORDER.index(name.partition("/")[0]), known.index(name))):
        cells = [say_estimate(one.figures.get(figure), figure) for one in judged.values()]
        yield Row(say_name(evaluation, figure), cells, figure)


def say_name(evaluation: SafetyEvaluation, figure: str) -> str:
    """What a figure is called: time in violation of level [s], gap to controller."""
    kind, _, of = figure.partition("/")
    words, of = kind.replace("_", " "), of.replace("_", " ")
    if kind == "gap":
        return f"return less that of {of}"
    unit = evaluation.time_unit if kind == TIME else evaluation.units.get(figure.partition("/")[2], "")
    unit = f" [{unit}]" if unit and kind in (TIME, EXCURSION) else ""
    return f"{words}{': ' + of if of else ''}{unit}"


def say_estimate(found: Estimate | None, figure: str) -> str:
    """A figure with its interval, where it has one."""
    if found is None:
        return ""
    share = figure.partition("/")[0] in SHARES

    def say(value: float) -> str:
        return f"{value:.0%}" if share else say_figure(value)

    return say(found.value) if found.certain else f"{say(found.value)} ({say(found.low)} to {say(found.high)})"


def in_words(evaluation: SafetyEvaluation) -> str:
    """All figures as text, a table for each scenario."""
    lines = [headline(evaluation)]
    for scenario, judged in evaluation.scenarios.items():
        table = [[scenario, *judged], *([row.name, *row.cells] for row in rows_of(evaluation, scenario))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines.append("")
        for row in table:
            first, *others = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def headline(evaluation: SafetyEvaluation) -> str:
    """What was evaluated, in one line."""
    count = len(evaluation.seeds)
    seeds = f"{count} seeds" if count > 1 else "1 seed"
    how = "interquartile mean (95% bootstrap interval)" if count > 1 else "mean"
    return f"{evaluation.environment}: {evaluation.policy}, {how} of {seeds} of {evaluation.episodes} episodes"


def as_dict(evaluation: SafetyEvaluation) -> dict[str, Any]:
    """All figures as plain values; what is infinite is None."""
    return {
        "environment": evaluation.environment,
        "policy": evaluation.policy,
        "seeds": list(evaluation.seeds),
        "episodes": evaluation.episodes,
        "time_unit": evaluation.time_unit,
        "units": dict(evaluation.units),
        "scenarios": {
            scenario: {
                name: {figure: _plain(found) for figure, found in one.figures.items()} for name, one in judged.items()
            }
            for scenario, judged in evaluation.scenarios.items()
        },
    }


def _plain(found: Estimate) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return value if isfinite(value) else None

    ends = {name: finite(getattr(found, name)) for name in ("value", "low", "high")}
    return {**ends, "seeds": [finite(value) for value in found.values]}
