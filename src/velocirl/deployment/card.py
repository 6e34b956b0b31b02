"""Model card of a policy as Markdown: description, score, safety and provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from velocirl.deployment.controller import Choice, Number
from velocirl.deployment.markdown import facts, plain, table
from velocirl.deployment.reading import actions_of, signals_of
from velocirl.deployment.validity import data_rows, ranges, sha256_of, use
from velocirl.engine.disk.writing import write_shared
from velocirl.monitor.words import say_percent
from velocirl.runs.curves.curve import draw_curve
from velocirl.runs.directory import Run
from velocirl.training.agent import Agent
from velocirl.training.evaluation import Evaluation, evaluate
from velocirl.training.offline import OfflineAgent
from velocirl.trajectories.alarms import Alarm
from velocirl.trajectories.figures import RATE, STOPS
from velocirl.trajectories.picture import as_png, require_matplotlib
from velocirl.trajectories.safety import CONTROLLER, SafetyEvaluation, evaluate_safety
from velocirl.trajectories.telling import (
    COLUMNS,
    constraint_rows,
    figure_rows,
    headline,
    methods,
    say_share,
)

CARD, CURVE, MODEL = "model_card.md", "learning_curve.png", "model.safetensors"
RANGES = (
    "Signals lay within these ranges: in training by the recorded data or by the normalizer, and when judged in the"
    " episodes of the seed with the worst one of each scenario. Nothing is known of the policy beyond them."
)
EPISODES, SEEDS, SAFETY_EPISODES = 100, 5, 10
MOST_LISTED = 64  # signals, or alarms of a scenario


def write_card(
    agent: Agent,
    directory: str | Path,
    run: Run | None = None,
    source: str = "",
    *,
    episodes: int = EPISODES,
    seeds: int = SEEDS,
    watch: Callable[[str, str, int], Any] | None = None,
    offline: object = None,
) -> Path:
    """Evaluate an agent, and write its card, model and images into a directory. Returns the path of the card.

    `episodes` are played for its score. If its environment has constraints, `evaluate_safety` runs with `seeds` seeds
    too. With a `run`, the card shows the learning curve and training details. `offline` is the result of
    `judge_offline`, for a policy trained on recorded data; the card states if it is missing.
    """
    require_matplotlib()
    directory = Path(directory)
    score = evaluate(agent, episodes=episodes, seed=0)
    safety = None
    if agent.source.native is not None and agent.source.native.constraints:
        safety = evaluate_safety(agent, seeds=seeds, episodes=SAFETY_EPISODES, watch=watch)
    pictures = {} if safety is None else _trajectories(safety)
    directory.mkdir(parents=True, exist_ok=True)
    model = agent.save(directory / MODEL, memory=False, training=False)
    text = card_text(agent, run, source, score, safety, list(pictures), model=model, offline=offline)
    for name, picture in pictures.items():
        write_shared(directory / name, [picture])
    if run is not None:
        draw_curve(run.rows(), directory / CURVE, f"{agent.source.id}: {agent.name}")
    write_shared(directory / CARD, [text.encode()])  # last, so that all files it refers to exist
    return directory / CARD


def card_text(
    agent: Agent,
    run: Run | None,
    source: str,
    score: Evaluation,
    safety: SafetyEvaluation | None,
    pictures: Sequence[str],
    *,
    model: Path,
    offline: object = None,
) -> str:
    """Return the text of the card, whose images and model lie in its directory."""
    parts = [
        f"# {plain(type(agent).__name__)} on {plain(agent.source.id)}",
        "How this policy acts, how good and how safe it was when this was written, and what it was made with.",
        facts([*_about(agent, run, source), (f"SHA-256 of {model.name}", sha256_of(model))]),
        "## Intended use and validity",
        facts(use(agent, score, safety, run)),
    ]
    if seen := ranges(agent, safety, MOST_LISTED):
        parts += [RANGES, table(["signal", "unit", "in training", "when judged"], seen, words=4)]
    parts += ["## Score", _score(score)]
    if isinstance(agent, OfflineAgent):
        parts += ["## Judgement by recorded data", *_offline(offline)]
    if run is not None:
        parts += ["## Learning curve", f"![return over {agent.counted}]({CURVE})"]
    parts += ["## Safety", *_safety(safety, pictures)]
    parts += ["## What it reads and does", *_signals(agent)]
    parts += ["## Data", facts(_data(agent, run)), "## Settings", facts(_settings(agent))]
    parts += ["## Versions", facts(_versions(run))]
    return "\n\n".join(parts) + "\n"


def _offline(found: object) -> list[str]:
    """Return the evaluation of an offline policy by recorded data, or a note that it is missing."""
    if found is None:
        return [
            "**The policy learnt from recorded data and was not judged by them**: estimates of its return and risk are"
            " missing (velocirl evaluate RUN --data FILE, judge_offline)."
        ]
    return [plain(line) for line in str(found).splitlines() if line.strip()]


def _about(agent: Agent, run: Run | None, source: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [
        ("algorithm", agent.name),
        *agent.parts().items(),
        ("trained for", f"{agent.steps:,} {agent.counted}"),
        ("seed", agent.seed),
    ]
    if source:
        found.append(("model", source))
    if run is not None:
        found += [("run", run.name), ("begun", f"{run.description.created:%Y-%m-%d %H:%M %Z}")]
        found.append(("status", run.description.status))
    return found


def _score(score: Evaluation) -> str:
    returns = score.returns
    row = [f"{value:,.2f}" for value in (score.mean_return, score.std_return, returns.min(), returns.max())]
    heads = ["episodes", "mean return", "standard deviation", "least", "most", "mean length"]
    words = "The best action in each step; nothing is drawn."
    lines = [f"{words}\n\n{table(heads, [[f'{len(returns):,}', *row, f'{score.lengths.mean():,.1f}']])}"]
    return "\n\n".join([*lines, *map(plain, score.safety_lines())])


def _safety(safety: SafetyEvaluation | None, pictures: Sequence[str]) -> list[str]:
    if safety is None:
        return ["The environment states no limits that must be kept, so that nothing is said of safety here."]
    played = "Random actions and the controller that comes with the plant played from the same beginnings."
    parts = [_verdict(safety), f"{plain(headline(safety))}. {played}", plain(" ".join(methods(safety)))]
    for (scenario, judged), picture in zip(safety.scenarios.items(), pictures, strict=True):
        parts.append(f"### Scenario: {plain(scenario)}")
        parts.append(table(["", *judged], figure_rows(safety, scenario)))
        parts.append(table(COLUMNS, constraint_rows(safety, scenario, safety.policy), words=2))
        own = judged[safety.policy]
        parts.append(f"The worst episode of all seeds: seed {own.trajectory.seed}, episode {own.worst + 1}.")
        parts.append(f"![trajectories against limits]({picture})")
        parts += _alarms(own.alarms)
    return parts


def _verdict(safety: SafetyEvaluation) -> str:
    """Return a sentence on how often limits were violated, the most important fact for deployment."""
    figures = {scenario: judged[safety.policy].figures for scenario, judged in safety.scenarios.items()}
    worst = max(figures, key=lambda scenario: figures[scenario][RATE].value)
    violated, stops = figures[worst][RATE], max((one[STOPS] for one in figures.values() if STOPS in one),
                                                key=lambda one: one.value, default=None)  # fmt: skip
    if violated.count == 0:
        scenarios = f" of each of {len(figures)} scenarios" if len(figures) > 1 else ""
        return (
            f"**No limit was violated in {violated.episodes} episodes{scenarios}.** With 95% confidence, a limit is"
            f" violated in at most {say_percent(violated.high, ceil)} of episodes."
        )
    said = f"**Limits were violated in {say_share(violated)} of episodes** (scenario {plain(worst)}, the worst)"
    if (rival := safety.scenarios[worst].get(CONTROLLER)) is not None:
        said = f"{said}; by the plant's own controller in {say_share(rival.figures[RATE])}"
    if stops is not None and stops.count:
        said = f"{said}. **Emergency stops ended {say_share(stops)} of episodes** in the scenario with the most"
    return f"{said}."


def _alarms(alarms: Sequence[tuple[int, Alarm]]) -> list[str]:
    """Return the violations of all seeds as a table, those of the worst episode first."""
    if not alarms:
        return []
    rows = [
        [seed, one.episode + 1, one.constraint, "critical" if one.critical else "", f"{one.time:g}", f"{one.value:.4g}",
         f"{one.limit:.4g}", one.unit, f"{one.duration:g}"]
        for seed, one in alarms[:MOST_LISTED]
    ]  # fmt: skip
    heads = ["seed", "episode", "violated", "", "time", "worst value", "limit", "unit", "duration"]
    more = [f"And {len(alarms) - MOST_LISTED:,} more."] if len(alarms) > MOST_LISTED else []
    return [table(heads, rows, words=4), *more]


def _trajectories(safety: SafetyEvaluation) -> dict[str, bytes]:
    """Return images of the policy's worst episode in each scenario, by file name."""
    found = {}
    for place, judged in enumerate(safety.scenarios.values()):
        own = judged[safety.policy]
        found[f"trajectories_{place + 1}.png"] = as_png(own.trajectory.one(own.worst))
    return found


def _signals(agent: Agent) -> list[str]:
    signals, actions = signals_of(agent.source), actions_of(agent)
    seen = [[place, one.name, one.unit] for place, one in enumerate(signals[:MOST_LISTED])]
    more = [f"And so on, {len(signals):,} in all."] if len(signals) > MOST_LISTED else []
    done = [[place, one.name, one.unit, *_limits(one)] for place, one in enumerate(actions)]
    return [
        table(["observation", "signal", "unit"], seen, words=3), *more,
        table(["action", "actuator", "unit", "from", "to"], done, words=3),
    ]  # fmt: skip


def _limits(one: Choice | Number) -> list[str]:
    if isinstance(one, Choice):
        return [str(one.start), str(one.start + one.count - 1)]
    return [f"{one.centre + one.reach * end:.6g}" for end in (one.low, one.high)]


def _data(agent: Agent, run: Run | None) -> list[tuple[str, object]]:
    """Return the training environment, and the recorded data if there is any."""
    source = agent.source
    found: list[tuple[str, object]] = [("environment", source.id)]
    if source.native is not None:
        found.append(("scenario", source.scenario or "none"))
    found.append(("parameters", _shown(source.own_params) if source.own_params else "the environment's own"))
    if run is not None and run.description.plan is not None and run.description.plan.environment_file is not None:
        plan = run.description.plan
        found.append(("file", f"{plan.environment_file} (SHA-256 {plan.environment_sha256})"))
    return [*found, *data_rows(agent)]


def _settings(agent: Agent) -> list[tuple[str, object]]:
    config = dataclasses.asdict(agent.config)
    return [(name, _shown(value)) for name, value in config.items() if name not in ("params", "scenario")]


def _shown(value: Any) -> str:
    return ", ".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, Mapping) else str(value)


def _versions(run: Run | None) -> list[tuple[str, object]]:
    from velocirl import __version__

    found: list[tuple[str, object]] = [("written by", f"velocirl {__version__}")]
    if run is not None:
        found += [(f"trained with {name}", version) for name, version in run.description.versions.items()]
        found.append(("trained on", f"{run.description.processor}, {run.description.device}"))
    return found
