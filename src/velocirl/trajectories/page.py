"""Trajectory as one HTML file, for a browser without a network."""

from __future__ import annotations

import numpy as np

from velocirl.monitor.markup import Markup, pill, table, tag
from velocirl.monitor.pages.page import whole_page
from velocirl.monitor.pages.words import section
from velocirl.monitor.words import plural, say_figure
from velocirl.trajectories.alarms import alarms_of
from velocirl.trajectories.control import CLOSEST, IAE, OVERSHOOT, SETTLING, TRAVEL, control_figures
from velocirl.trajectories.drawing import alarm_table, line_legend, panel_cards, with_unit
from velocirl.trajectories.figures import stopped
from velocirl.trajectories.panels import by_episode, headline, panels_of
from velocirl.trajectories.trajectory import Trajectory

TIME_WORDS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}


def as_page(trajectory: Trajectory) -> bytes:
    """Render the page: every quantity against its limits, alarms, and how episodes ended."""
    shown = by_episode(trajectory)
    panels = panels_of(shown)
    head = tag("header", tag("h1", trajectory.environment), tag("p", _says(trajectory), class_="where"), class_="top")
    limited, targets = (any(getattr(panel, kind) for panel in panels) for kind in ("limits", "set_points"))
    parts = {
        "trajectories": (
            "Trajectories",
            section(
                "trajectories",
                "Trajectories",
                f"Time is in {TIME_WORDS.get(panels[0].time_unit, panels[0].time_unit)}.",
                line_legend(list(shown), limits=limited, set_points=targets),
                panel_cards(panels),
            ),
        ),
        "control": ("Control", _control(trajectory)),
        "alarms": ("Alarms", _alarms(trajectory)),
        "episodes": ("Episodes", section("episodes", "Episodes", "", _episodes(trajectory))),
    }
    return whole_page(f"velocirl record: {headline(trajectory)}", parts, head).encode()


def _control(trajectory: Trajectory) -> Markup:
    """Table of set points, actuator travel and distances from limits by episode."""
    sources = {IAE: "set_points", OVERSHOOT: "set_points", TRAVEL: "actuators", CLOSEST: "constraints"}
    rows = []
    for figure, values in control_figures(trajectory).items():
        kind, _, name = figure.partition("/")
        unit = trajectory.time_unit if kind == SETTLING else getattr(trajectory, sources[kind])[name].unit
        unit = f"{unit if unit != '1' else ''} {trajectory.time_unit}".strip() if kind == IAE else unit
        title = f"{kind.replace('_', ' ').replace('iae', 'IAE')} of {name.replace('_', ' ')}"
        ends = [float(np.median(values)), float(values.min()), float(values.max())]
        rows.append([title, *(with_unit(one, unit) if np.isfinite(one) else "not settled" for one in ends)])
    if not rows:
        return Markup()
    shown = table(["", "median", "least", "most"], rows, numeric={1, 2, 3})
    return section("control", "Control", "Over episodes. Set points are those of the environment's controller.", shown)


def _says(trajectory: Trajectory) -> str:
    words = [f"{trajectory.policy}, {plural(trajectory.episodes, 'episode')}"]
    if trajectory.scenario is not None:
        words.append(f"scenario {trajectory.scenario}")
    if trajectory.seed is not None:
        words.append(f"seed {trajectory.seed}")
    return ", ".join(words)


def _alarms(trajectory: Trajectory) -> Markup:
    if not trajectory.constraints:
        return Markup()
    return section("alarms", "Alarms", "", alarm_table(alarms_of(trajectory), trajectory.time_unit))


def _episodes(trajectory: Trajectory) -> Markup:
    rows, stops = [], stopped(trajectory)
    for number, one in enumerate(trajectory.each()):
        costs = [f"{trace.cost.sum():g}" for trace in one.constraints.values()]
        how = pill("emergency stop", "bad") if stops[number] else "terminated" if one.terminated[-1] else "cut off"
        rows.append([str(number + 1), say_figure(float(one.returns[0])), f"{one.lengths[0]:,}", *costs, how])
    headings = ["episode", "return", "steps", *(f"cost of {name}" for name in trajectory.constraints), "end"]
    return table(headings, rows, numeric=set(range(1, len(headings) - 1)), class_="sortable")
