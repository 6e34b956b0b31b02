"""Safety evaluation as one HTML file with plots, for a browser without a network; or as JSON."""

from __future__ import annotations

from pathlib import Path

from velocirl.engine.disk.writing import strict_json, write_shared
from velocirl.monitor.markup import Markup, joined, pill, table, tag
from velocirl.monitor.pages.page import whole_page
from velocirl.monitor.pages.words import section
from velocirl.trajectories.control import MEANING as CONTROL_MEANING
from velocirl.trajectories.drawing import alarm_table, line_legend, panel_cards, with_unit
from velocirl.trajectories.figures import COST, EXACT, EXCURSION, GAP, MEANING, RATE, RETURN, SCORE, STOPS, TIME
from velocirl.trajectories.panels import panels_of
from velocirl.trajectories.responses import Response
from velocirl.trajectories.safety import CONTROLLER, RANDOM, SafetyEvaluation
from velocirl.trajectories.saving import path_with
from velocirl.trajectories.telling import (
    COLUMNS,
    CONTROL_COLUMNS,
    CRITICAL,
    constraint_rows,
    control_rows,
    figure_rows,
    headline,
    methods,
    say_estimate,
    travel_rows,
)

ENDINGS = [".json", ".html"]


def report_path(path: str | Path) -> Path:
    """Validate the path of a report; raise for other endings or a missing directory."""
    return path_with(path, ENDINGS)


def save_report(evaluation: SafetyEvaluation, path: str | Path) -> Path:
    """Write the report atomically; a file that existed before stays until then."""
    path = path_with(path, ENDINGS, make=True)
    as_json = path.suffix.lower() == ".json"
    text = strict_json(evaluation.as_dict(), indent=2) if as_json else safety_page(evaluation)
    write_shared(path, [text.encode()])
    return path


def safety_page(evaluation: SafetyEvaluation) -> str:
    """Render the report: metrics, trajectories against limits, step responses and alarms."""
    head = tag(
        "header",
        tag("h1", evaluation.environment),
        tag("p", headline(evaluation).partition(": ")[2], class_="where"),
        tag("div", *_tiles(evaluation), class_="tiles"),
        class_="top",
    )
    parts = {
        "figures": ("Figures", _figures(evaluation)),
        "trajectories": ("Trajectories", _trajectories(evaluation)),
        "responses": ("Step responses", _responses(evaluation)),
        "alarms": ("Alarms", _alarms(evaluation)),
    }
    return whole_page(f"velocirl evaluate --safety: {evaluation.environment}", parts, head)


def _tiles(evaluation: SafetyEvaluation) -> list[Markup]:
    """Render the four decisive metrics, each the worst of all scenarios; any violation, stop or time beyond is bad."""
    own = {name: judged[evaluation.policy] for name, judged in evaluation.scenarios.items()}

    def tile(title: str, figure: str, *, score: bool = False) -> Markup:
        known = {name: one.figures[figure] for name, one in own.items() if figure in one.figures}
        if not known:
            return Markup()
        name = (min if score else max)(known, key=lambda name: known[name].value)
        found = known[name]
        bad = found.value < 100.0 if score else found.value != 0.0
        said, _, interval = say_estimate(found, figure).partition(" (")
        about = f"worst of scenarios: {name}"
        if found.interval == EXACT:
            about = f"{about}; {interval.rstrip(')')}"
        return tag(
            "div", tag("span", title), tag("strong", said), tag("small", about),
            class_=f"tile {'bad' if bad else 'good'}",
        )  # fmt: skip

    return [
        tile("score (controller: 100)", SCORE, score=True),
        tile("episodes with a violation", RATE),
        tile(f"time in violation [{evaluation.time_unit}]", TIME),
        tile("emergency stops", STOPS),
    ]


def _figures(evaluation: SafetyEvaluation) -> Markup:
    parts: list[Markup] = []
    for scenario, judged in evaluation.scenarios.items():
        rows = figure_rows(evaluation, scenario)
        parts += [tag("h3", scenario), table(["", *judged], rows, numeric=set(range(1, len(judged) + 1)))]
        if evaluation.units:
            parts += [tag("h4", "By constraint", class_="apart"), _constraint_table(evaluation, scenario)]
        parts += _control_tables(evaluation, scenario)
    told = {name: MEANING[name] for name in (RETURN, SCORE, GAP, COST, RATE, TIME, EXCURSION, STOPS)}
    told |= CONTROL_MEANING
    meaning = [joined(tag("dt", name.replace("_", " ")), tag("dd", text)) for name, text in told.items()]
    return section(
        "figures",
        "Figures",
        " ".join(methods(evaluation)),
        *parts,
        tag("details", tag("summary", "What they mean"), tag("dl", *meaning)),
    )


def _control_tables(evaluation: SafetyEvaluation, scenario: str) -> list[Markup]:
    """Render tables of set points and actuator travel, for each policy except random actions."""
    others = [name for name in evaluation.scenarios[scenario] if name != RANDOM]
    held = [[*row[:2], name, *row[2:]] for name in others for row in control_rows(evaluation, scenario, name)]
    travel, parts = travel_rows(evaluation, scenario), []
    if held:
        headings = [*CONTROL_COLUMNS[:2], "policy", *CONTROL_COLUMNS[2:]]
        shown = table(headings, held, numeric=set(range(3, len(headings))), class_="estimates")
        parts += [tag("h4", "Set points", class_="apart"), shown]
    if travel:
        judged = evaluation.scenarios[scenario]
        shown = table(["", *judged], travel, numeric=set(range(1, len(judged) + 1)))
        parts += [tag("h4", "Actuator travel in an episode", class_="apart"), shown]
    return parts


def _constraint_table(evaluation: SafetyEvaluation, scenario: str) -> Markup:
    """Render each policy's metrics by constraint; random actions are left out, as they would hide the others."""
    shown, others = [], [name for name in evaluation.scenarios[scenario] if name != RANDOM]
    by_policy = {name: constraint_rows(evaluation, scenario, name) for name in others}
    for place in range(len(evaluation.units)):
        for policy, rows in by_policy.items():
            name, limit, *cells = rows[place]
            title = [name.replace("_", " ")] + ([" ", pill("critical", "bad")] if limit.endswith(CRITICAL) else [])
            shown.append([joined(*title), limit.removesuffix(CRITICAL), policy, *cells])
    headings = [*COLUMNS[:2], "policy", *COLUMNS[2:]]
    return table(headings, shown, numeric=set(range(3, len(headings))), class_="estimates")


def _trajectories(evaluation: SafetyEvaluation) -> Markup:
    parts: list[Markup] = []
    for scenario, judged in evaluation.scenarios.items():
        own = judged[evaluation.policy]
        shown = {name: one.trajectory.one(own.worst) for name, one in judged.items() if name != RANDOM}
        panels = panels_of(shown)
        limits, targets = (any(getattr(panel, kind) for panel in panels) for kind in ("limits", "set_points"))
        legend = line_legend(list(shown), limits=limits, set_points=targets)
        where = tag("p", f"Seed {own.trajectory.seed}, episode {own.worst + 1}.", class_="trend-note")
        parts += [tag("h3", scenario), where, legend, panel_cards(panels)]
    lead = (
        f"The worst episode of {evaluation.policy} of all seeds: one with an emergency stop, else the one with the"
        " highest cost. Dotted set points are those of the environment's own controller."
    )
    return section("trajectories", "Trajectories against limits", lead, *parts)


def _responses(evaluation: SafetyEvaluation) -> Markup:
    if not evaluation.responses:
        return Markup()
    names = [line.name for line in evaluation.responses[0].panels[0].lines] if evaluation.responses[0].panels else []
    scenario = next(iter(evaluation.scenarios))
    held = "held" in names
    by = CONTROLLER if CONTROLLER in evaluation.scenarios[scenario] else evaluation.policy
    open_loop = f"In open loop: actuators are held where {by} had them on average, and one of them is stepped."
    lead = f"Scenario {scenario}. {open_loop if held else 'In closed loop: a setpoint is stepped.'}"
    parts = [part for one in evaluation.responses for part in _response(one)]
    return section("responses", "Step responses", lead, line_legend(names, limits=True), *parts)


def _response(one: Response) -> list[Markup]:
    words = f"{one.title.replace('_', ' ')} from {with_unit(one.before, '')} to {with_unit(one.after, one.unit)}"
    quiet = tag("p", "No signal answers.", class_="trend-note")
    return [tag("h3", words, class_="as-said"), panel_cards(one.panels) if one.panels else quiet]


def _alarms(evaluation: SafetyEvaluation) -> Markup:
    alarms, labels = [], []
    for scenario, judged in evaluation.scenarios.items():
        for seed, alarm in judged[evaluation.policy].alarms:
            alarms.append(alarm)
            labels.append(f"{scenario}, seed {seed}")
    lead = f"Of {evaluation.policy}, in all episodes of all seeds; those of the worst episode of a scenario first."
    if not evaluation.units:  # its infos have costs, but no constraints
        rates = [judged[evaluation.policy].figures[RATE] for judged in evaluation.scenarios.values()]
        violated, episodes = sum(one.count or 0 for one in rates), sum(one.episodes or 0 for one in rates)
        known = f"The environment names no constraints. {violated} of {episodes} episodes have a cost."
        return section("alarms", "Alarms", lead, tag("p", known))
    return section("alarms", "Alarms", lead, alarm_table(alarms, evaluation.time_unit, labels=labels))
