"""An evaluation of safety as a table of text, and as plain values."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from velocirl.monitor.words import say_figure
from velocirl.trajectories.figures import COST, EXCURSION, GAP, LENGTH, RATE, RETURN, SCORE, STOPS, TIME, Estimate

if TYPE_CHECKING:
    from velocirl.trajectories.safety import SafetyEvaluation

SHARES = (RATE, STOPS)  # figures that are shares of all episodes


CRITICAL = ", critical"
OF_CONSTRAINTS = (COST, RATE, TIME, EXCURSION)
COLUMNS = ("constraint", "limit", "cost", "violation rate", "time in violation", "worst excursion")


def figure_rows(evaluation: SafetyEvaluation, scenario: str) -> list[list[str]]:
    """The figures of all policies in a scenario: rows of a name and a cell for each policy."""
    judged = evaluation.scenarios[scenario]
    known = dict.fromkeys(name for one in judged.values() for name in one.figures)
    gaps = [name for name in known if name.startswith(f"{GAP}/")]
    order = [RETURN, *([SCORE] if SCORE in known else []), *gaps, COST, RATE, TIME, STOPS, LENGTH]
    return [
        [
            say_name(figure, evaluation.time_unit),
            *(say_estimate(one.figures.get(figure), figure) for one in judged.values()),
        ]
        for figure in order
    ]


def constraint_rows(evaluation: SafetyEvaluation, scenario: str, policy: str) -> list[list[str]]:
    """What a policy made of each constraint in a scenario: rows of the columns of `COLUMNS`."""
    one, rows = evaluation.scenarios[scenario][policy], []
    for name, trace in one.trajectory.constraints.items():
        unit = f" {trace.unit}" if trace.unit else ""
        cells = {kind: say_estimate(one.figures[f"{kind}/{name}"], kind) for kind in OF_CONSTRAINTS}
        low, high = (f"{float(end[0]):,.6g}" if isfinite(end[0]) else "" for end in (trace.low, trace.high))
        limit = f"{low} to {high}" if low and high else f"at most {high}" if high else f"at least {low}"
        limit = f"{limit}{unit}{CRITICAL if trace.critical else ''}"
        time, excursion = f"{cells[TIME]} {evaluation.time_unit}", f"{cells[EXCURSION]}{unit}"
        rows.append([name, limit, cells[COST], cells[RATE], time, excursion])
    return rows


def say_name(figure: str, time_unit: str) -> str:
    """What a figure is called: time in violation [s], return less that of the controller."""
    kind, _, rival = figure.partition("/")
    if kind == GAP:
        return f"return less {rival}'s"
    words = kind.replace("_", " ")
    return f"{words} [{time_unit}]" if kind == TIME else words


def say_estimate(found: Estimate | None, figure: str) -> str:
    """A figure with its interval, where it has one."""
    if found is None:
        return ""
    share = figure in SHARES

    def say(value: float) -> str:
        return f"{value:.0%}" if share else f"{round(value, 1) + 0.0:,.1f}" if figure == SCORE else say_figure(value)

    return say(found.value) if found.certain else f"{say(found.value)} ({say(found.low)} to {say(found.high)})"


def in_words(evaluation: SafetyEvaluation) -> str:
    """All figures of a policy as text: for each scenario beside those of others, then by constraints."""
    lines = [headline(evaluation)]
    for scenario, judged in evaluation.scenarios.items():
        tables = [[[scenario, *judged], *figure_rows(evaluation, scenario)]]
        if limited := constraint_rows(evaluation, scenario, evaluation.policy):
            tables.append([list(COLUMNS), *limited])
        for table in tables:
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines.append("")
            lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
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
