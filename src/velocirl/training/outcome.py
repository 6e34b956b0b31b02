"""Result of a training, and suggested next commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium

from velocirl.engine.targets.cores import available_cores
from velocirl.runs.checkpoints import SCORE
from velocirl.runs.directory import Run
from velocirl.runs.metrics import RETURN
from velocirl.runs.model_score import ModelScore
from velocirl.runs.recording import interrupted
from velocirl.vector.making import GYMNASIUM

if TYPE_CHECKING:
    from rich.text import Text

    from velocirl.training.agent import Agent

COLORS = {"solved": "bold green", "finished": "bold", "stopped": "bold yellow"}


def outcome(agent: Agent, target: float | None) -> str:
    """Return the result of training: solved, finished or stopped."""
    if interrupted(agent):
        return "stopped"
    mean = agent.metrics.get(RETURN)
    wanted = solved_at(agent.source.id) if target is None else target
    full = len(agent.recent.returns) == agent.recent.returns.maxlen
    return "solved" if wanted is not None and mean is not None and full and mean >= wanted else "finished"


def solved_at(environment: str) -> float | None:
    """Return the mean return at which an environment counts as solved, if Gymnasium defines one."""
    known = gymnasium.registry.get(environment.removeprefix(GYMNASIUM))
    return None if known is None else known.reward_threshold


def ending(agent: Agent, run: Run, seconds: float, other_cores: float = 0.0) -> list[Text]:
    """Format the end of a run: result, load by other programs, directory, and next command.

    `other_cores` is the mean number of cores that other programs kept busy meanwhile.
    """
    from rich.text import Text  # imported only when output is displayed

    from velocirl.monitor.resource_use import NOTABLE_LOAD
    from velocirl.monitor.words import averaged, say_count, say_figure, say_seconds

    plan = run.description.plan
    word = outcome(agent, None if plan is None else plan.target_return)
    rate = float(agent.metrics.get("time/fps") or 0.0)
    mean = agent.metrics.get(RETURN)
    first = Text.assemble(
        (word, COLORS[word]),
        f" after {agent.steps:,} {agent.counted}, {say_seconds(seconds)}, {say_count(rate)} {agent.counted}/s",
        "" if mean is None else f"; return {say_figure(mean)}, {averaged(len(agent.recent.returns))}",
    )
    crowded = f"other programs kept {other_cores:.1f} of {available_cores()} cores busy"
    after = "resume" if word == "stopped" else "evaluate"
    score = ModelScore.read((run.checkpoints().best_document() or {}).get(SCORE))
    limited = None if score is None or not score.costs else Text.assemble(("model ", "dim"), str(score))
    if limited is not None and score is not None and not score.within:
        limited.stylize("yellow")
    return [
        first,
        *([] if limited is None else [limited]),
        *([Text(crowded, "yellow")] if other_cores >= NOTABLE_LOAD else []),
        Text.assemble(("run   ", "dim"), str(run.path)),
        Text.assemble(("next  ", "dim"), f"velocirl {after} {run.name}"),
    ]
