"""Safety evaluation as a text table, and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.monitor.words import plural, say_count_of, say_figure
from velocirl.trajectories.control import CLOSEST, IAE, OVERSHOOT, SETTLING, TRAVEL
from velocirl.trajectories.figures import (
    COST,
    EXACT,
    EXCURSION,
    GAP,
    LENGTH,
    PRODUCT,
    RATE,
    RETURN,
    SCORE,
    STOPS,
    TIME,
    Estimate,
)

if TYPE_CHECKING:
    from velocirl.trajectories.safety import SafetyEvaluation

CRITICAL = ", critical"
OF_CONSTRAINTS = (COST, RATE, TIME, EXCURSION, CLOSEST)
COLUMNS = (
    "constraint", "limit", "cost", "violation rate", "time in violation", "worst excursion", "closest approach",
)  # fmt: skip
CONTROL_COLUMNS = ("signal", "set point", "IAE", "overshoot", "settling time")


def figure_rows(evaluation: SafetyEvaluation, scenario: str) -> list[list[str]]:
    """Return the metrics of all policies in a scenario: rows of a name and a cell for each policy."""
    judged = evaluation.scenarios[scenario]
    known = dict.fromkeys(name for one in judged.values() for name in one.figures)
    gaps = [name for name in known if name.startswith(f"{GAP}/")]
    order = [RETURN, *([SCORE] if SCORE in known else []), *gaps, COST, RATE, TIME]
    order += [*([STOPS] if STOPS in known else []), LENGTH]
    return [
        [
            say_name(figure, evaluation.time_unit),
            *(say_estimate(one.figures.get(figure), figure) for one in judged.values()),
        ]
        for figure in order
    ]


def constraint_rows(evaluation: SafetyEvaluation, scenario: str, policy: str) -> list[list[str]]:
    """Return a policy's metrics by constraint in a scenario: rows of the columns of `COLUMNS`."""
    one, rows = evaluation.scenarios[scenario][policy], []
    for name, trace in one.trajectory.constraints.items():
        unit = f" {trace.unit}" if trace.unit not in ("", "1") else ""
        cells = {kind: say_estimate(one.figures[f"{kind}/{name}"], kind) for kind in OF_CONSTRAINTS}
        low, high = (f"{float(end[0]):,.6g}" if isfinite(end[0]) else "" for end in (trace.low, trace.high))
        limit = f"{low} to {high}" if low and high else f"at most {high}" if high else f"at least {low}"
        limit = f"{limit}{unit}{CRITICAL if trace.critical else ''}"
        time, excursion = f"{cells[TIME]} {evaluation.time_unit}", f"{cells[EXCURSION]}{unit}"
        rows.append([name, limit, cells[COST], cells[RATE], time, excursion, f"{cells[CLOSEST]}{unit}"])
    return rows


def control_rows(evaluation: SafetyEvaluation, scenario: str, policy: str) -> list[list[str]]:
    """Return how well a policy tracks each set point in a scenario: rows of the columns of `CONTROL_COLUMNS`."""
    one, rows = evaluation.scenarios[scenario][policy], []
    for name, target in one.trajectory.set_points.items():
        unit = f" {target.unit}" if target.unit not in ("", "1") else ""
        low, high = float(np.min(target.values)), float(np.max(target.values))
        aim = say_figure(low) if low == high else f"{say_figure(low)} to {say_figure(high)}"
        iae, overshoot = (say_estimate(one.figures[f"{kind}/{name}"], kind) for kind in (IAE, OVERSHOOT))
        iae = f"{iae}{unit} {evaluation.time_unit}"
        rows.append([name, f"{aim}{unit}", iae, f"{overshoot}{unit}", say_settling(evaluation, one.figures, name)])
    return rows


def say_settling(evaluation: SafetyEvaluation, figures: Mapping[str, Estimate], name: str) -> str:
    """Format a settling time: 85 s, 48 of 50 episodes settle; or that half of the episodes never settle."""
    found = figures[f"{SETTLING}/{name}"]
    reached = "" if found.count == found.episodes else f", {found.count} of {found.episodes} episodes settle"
    if not isfinite(found.value):
        return f"not settled{reached}"
    return f"{say_figure(found.value)} {evaluation.time_unit}{reached}"


def travel_rows(evaluation: SafetyEvaluation, scenario: str) -> list[list[str]]:
    """Return how far each actuator travels in an episode: rows of its name and a cell for each policy."""
    judged = evaluation.scenarios[scenario]
    rows = []
    for name, actuator in next(iter(judged.values())).trajectory.actuators.items():
        unit = f" {actuator.unit}" if actuator.unit not in ("", "1") else ""
        cells = [f"{say_estimate(one.figures.get(f'{TRAVEL}/{name}'), TRAVEL)}{unit}" for one in judged.values()]
        rows.append([name, *cells])
    return rows


def say_name(figure: str, time_unit: str) -> str:
    """Return the display name of a metric: time in violation [s], return less controller's."""
    kind, _, rival = figure.partition("/")
    if kind == GAP:
        return f"return less {rival}'s"
    words = kind.replace("_", " ")
    return f"{words} [{time_unit}]" if kind == TIME else words


def say_estimate(found: Estimate | None, figure: str) -> str:
    """Format a metric with its interval, if it has one; rates as counts: 3 of 50, 6.0% (1.2% to 16.6%)."""
    if found is None:
        return ""
    if found.interval == EXACT:
        return say_share(found)

    def say(value: float) -> str:
        return f"{round(value, 1) + 0.0:,.1f}" if figure == SCORE else say_figure(value)

    said = say(found.value)
    if isfinite(found.high) and not found.certain:
        said = f"{said} ({say(found.low)} to {say(found.high)})"
    return f"{said}, most {say(found.most)}" if found.most else said


def say_share(found: Estimate) -> str:
    """Format a count of episodes with its interval."""
    return say_count_of(found.count or 0, found.episodes or 1)


def in_words(evaluation: SafetyEvaluation) -> str:
    """Format all metrics of a policy as text: for each scenario next to other policies, then by constraint."""
    lines = [headline(evaluation), *methods(evaluation)]
    for scenario, judged in evaluation.scenarios.items():
        tables = [[[scenario, *judged], *figure_rows(evaluation, scenario)]]
        if limited := constraint_rows(evaluation, scenario, evaluation.policy):
            tables.append([list(COLUMNS), *limited])
        if held := control_rows(evaluation, scenario, evaluation.policy):
            tables.append([list(CONTROL_COLUMNS), *held])
        if travel := travel_rows(evaluation, scenario):
            tables.append([["actuator travel", *judged], *travel])
        for table in tables:
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines.append("")
            lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    return "\n".join(lines)


def headline(evaluation: SafetyEvaluation) -> str:
    """Return a one-line title of the evaluation."""
    count = len(evaluation.seeds)
    seeds = f"{count} seeds" if count > 1 else "1 seed"
    each = plural(evaluation.episodes, "episode")
    return f"{evaluation.environment}: {evaluation.policy}, {seeds} of {each}"


def methods(evaluation: SafetyEvaluation) -> list[str]:
    """Return lines that describe how metrics and their 95% intervals are computed."""
    count = len(evaluation.seeds)
    episodes = count * evaluation.episodes
    over = f"interquartile mean over {count} seeds (bootstrap interval)" if count > 1 else "mean of one seed"
    return [
        f"Returns and scores: {over}.",
        f"Violations and stops: counts over all {episodes} episodes; interval: {EXACT}.",
        f"Costs and times: mean over all {episodes} episodes, and the most of one; interval: {PRODUCT} (two or more).",
    ]


def as_dict(evaluation: SafetyEvaluation) -> dict[str, Any]:
    """Return all metrics as plain values; infinite ones become None."""
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
    def finite(value: float | None) -> float | None:
        return value if value is not None and isfinite(value) else None

    ends = {name: finite(getattr(found, name)) for name in ("value", "low", "high")}
    counted = {"count": found.count, "episodes": found.episodes, "most": finite(found.most)}
    counted = {name: value for name, value in counted.items() if getattr(found, name) is not None}
    return {**ends, **counted, "interval": found.interval, "seeds": [finite(value) for value in found.values]}
