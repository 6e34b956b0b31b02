"""`velocirl evaluate`: returns and costs of a trained policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.cli.judging_data import FOR_DATA, add_data, judge_data
from velocirl.cli.judging_safety import FOR_SAFETY, add_safety, judge_safety
from velocirl.cli.named.controllers import add_controller, find_controller
from velocirl.cli.named.models import add_model, add_stochastic, find_model
from velocirl.cli.parsing import Parser, one_of, whole_number
from velocirl.monitor.words import plural
from velocirl.runs.intervals import exact_share, mean_cost
from velocirl.training.actors.playing import film_path, moments, record_video
from velocirl.training.agent import Agent
from velocirl.training.evaluation import MOST_STEPS, Evaluation
from velocirl.training.evaluation import evaluate as play

if TYPE_CHECKING:
    from rich.console import Console

EPISODES = 100
BARS, BAR_COLUMNS = 10, 32
MODES = {"human": "human", "text": "ansi"}


def evaluate(arguments: Sequence[str]) -> None:
    """Play whole episodes with the model of a run or a file, or with a controller, and print the results."""
    given = _parser().parse(arguments)
    if refused := [name for name in FOR_SAFETY if name in given and "safety" not in given]:
        raise ValueError(f"--{refused[0]} goes with --safety")
    if refused := [name for name in FOR_DATA if name in given and "data" not in given]:
        raise ValueError(f"--{refused[0]} goes with --data")
    for other in ("safety", "data"):
        if other in given and "max_steps" in given:
            raise ValueError(f"--max-steps does not go with --{other}: leave one of them out")
    if "data" in given:
        judge_data(given)
        return
    if "safety" in given:
        judge_safety(given)
        return
    video = film_path(given["video"]) if "video" in given else None
    if "controller" in given:
        controller, chosen = find_controller(given)
        about = {"model": given["controller"], "environment": chosen.id, "scenario": given.get("scenario")}
        _tell(given, controller, chosen.environment, about)
        return
    state, chosen, source = find_model(given)
    agent = Agent.from_state(state, chosen.environment, source)
    if "scenario" in given:
        agent.set_scenario(given["scenario"])
    seed, deterministic = given.get("seed", 0), "stochastic" not in given
    about = {"model": source, "environment": agent.source.id, "algorithm": agent.name}
    _tell(given, agent, None, {**about, "scenario": agent.source.scenario, "steps": agent.steps})
    if "render" in given:
        for one in moments(agent, MODES[given["render"]], seed=seed, deterministic=deterministic):
            if one.picture is not None:
                print(one.picture)
    if video is not None:
        record_video(agent, video, seed=seed, deterministic=deterministic)


def _tell(given: dict[str, Any], policy: Any, environment: Any, about: dict[str, Any]) -> None:
    """Play with a policy and print the result; `about` describes the policy."""
    seed, deterministic = given.get("seed", 0), "stochastic" not in given
    scenario = None if environment is None else given.get("scenario")  # an agent has its scenario set already
    episodes = given.get("episodes", EPISODES)
    options = {"deterministic": deterministic, "scenario": scenario, "max_steps": given.get("max_steps")}
    result = play(policy, environment, episodes, seed, **options)
    if "json" in given:
        print(json.dumps({**about, **_as_json(result, seed, deterministic)}))
    else:
        from velocirl.monitor.console import make_console  # rendering is imported only when needed

        _show(make_console(), result, about)


def _as_json(result: Evaluation, seed: int, deterministic: bool) -> dict[str, Any]:
    return {
        "episodes": len(result.returns),
        "seed": seed,
        "deterministic": deterministic,
        "mean": result.mean_return,
        "std": result.std_return,
        "min": float(result.returns.min()),
        "max": float(result.returns.max()),
        "mean_length": float(result.lengths.mean()),
        "cut": result.cut,
        **_costs_as_json(result),
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
    }


def _costs_as_json(result: Evaluation) -> dict[str, Any]:
    """Return costs, violations and stops, as counts of episodes with exact intervals; empty without costs."""
    costs = result.costs
    if costs is None:
        return {}
    counts = {"violations": int(costs.violated.sum())}
    if costs.stopped is not None:
        counts["emergency_stops"] = int(costs.stopped.sum())
    shares = {name: {"count": k, "interval": exact_share(k, len(result.returns))} for name, k in counts.items()}
    finite = [float(one) if np.isfinite(one) else None for one in costs.cost]
    mean, low, high = (one if np.isfinite(one) else None for one in mean_cost(costs.cost))
    cost = {"mean": mean, "low": low, "high": high, "by_constraint": {}}
    cost["by_constraint"] = {name: float(of.mean()) for name, of in costs.by_constraint.items()}
    return {"cost": cost, **shares, "costs": finite}


def _show(console: Console, result: Evaluation, about: dict[str, Any]) -> None:
    algorithm = f", {about['algorithm']}" if "algorithm" in about else ""
    console.print(f"{about['model']}: {about['environment']}{algorithm}", markup=False, soft_wrap=True)
    spread = "±" if console.encoding.startswith("utf") else "+-"
    console.print(
        f"[bold]return {result.mean_return:,.2f} {spread} {result.std_return:,.2f}[/bold]"
        f"  from {result.returns.min():,.2f} to {result.returns.max():,.2f}"
        f"  over {plural(len(result.returns), 'episode')} of {result.lengths.mean():,.1f} steps"
        + (f", {result.cut} of them cut after {result.lengths.max():,}" if result.cut else ""),
        soft_wrap=True,
    )
    for line in result.safety_lines():
        console.print(line, markup=False, soft_wrap=True)
    for line in histogram(result.returns, ascii_only=console.options.ascii_only):
        console.print(f"  {line}", style="cyan", markup=False, soft_wrap=True)


def histogram(values: Any, *, ascii_only: bool = False) -> list[str]:
    """Format a histogram of values as lines of bars; empty if all values are equal."""
    values = np.asarray(values, np.float64)
    if np.ptp(values) == 0.0:
        return []
    counts, edges = np.histogram(values, min(BARS, max(2, round(len(values) ** 0.5))))
    block = "#" if ascii_only else "█"
    labels = [f"{low:,.4g} to {high:,.4g}" for low, high in pairwise(edges)]
    margin = max(map(len, labels))
    bars = [block * round(BAR_COLUMNS * count / counts.max()) if count else "" for count in counts]
    return [f"{label:>{margin}}  {bar} {count}" for label, bar, count in zip(labels, bars, counts, strict=True)]


def _parser() -> Parser:
    parser = Parser(
        "evaluate [RUN|FILE|ENV]",
        "Play whole episodes with the model of a run or of a file, or with a controller, and say how they went.",
    )
    add_model(parser)
    add_controller(parser)
    parser.add_argument("--episodes", type=whole_number, metavar="N", help=f"Number of episodes (default: {EPISODES})")
    parser.add_argument(
        "--max-steps",
        type=whole_number,
        metavar="N",
        help=f"Cut episodes that have not ended after N steps (default: {MOST_STEPS:,}, or a longer time limit)",
    )
    parser.add_argument("--seed", type=whole_number, metavar="N", help="Seed of the environments (default: 0)")
    add_stochastic(parser)
    parser.add_argument(
        "--scenario", metavar="NAME", help="Scenario in which the environment is operated (default: that of training)"
    )
    parser.add_argument(
        "--render", type=one_of(list(MODES)), metavar="|".join(MODES), help="Show one episode afterwards"
    )
    parser.add_argument("--video", type=Path, metavar="FILE", help="Film one episode afterwards, as .gif or .mp4")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    add_safety(parser)
    add_data(parser)
    return parser
