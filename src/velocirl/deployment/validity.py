"""Limits of validity for a model card: conditions of training and evaluation, and the fallback beyond them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from velocirl.deployment.reading import signals_of
from velocirl.engine.disk.files import open_plain
from velocirl.engine.drawing import Draw
from velocirl.monitor.words import plural
from velocirl.runs.checkpoints import SCORE
from velocirl.runs.directory import Run
from velocirl.runs.model_score import ModelScore
from velocirl.training.agent import Agent
from velocirl.training.evaluation import Evaluation
from velocirl.training.offline import OfflineAgent
from velocirl.trajectories.safety import SafetyEvaluation

Rows = list[tuple[str, object]]
NO_FALLBACK = "none: nothing takes over where an observation lies beyond these ranges"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as printed by `sha256sum`."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def use(agent: Agent, score: Evaluation, safety: SafetyEvaluation | None, run: Run | None) -> Rows:
    """Return the intended use: the plant and its parameters, the limits that applied, episodes, and the fallback."""
    native = agent.source.native
    rows: Rows = [("intended use", f"to act in {agent.source.id} as it is described here, and in nothing else")]
    rows.append(("parameters trained", _parameters(agent.source.own_params)))
    episodes = [f"{len(score.returns):,} for the score"]
    if safety is not None:
        scenarios = list(safety.scenarios)
        given = {} if native is None else native.scenarios
        known = [f"{name}: {_parameters({**agent.source.own_params, **given.get(name, {})})}" for name in scenarios]
        rows.append(("parameters judged", "; ".join(known)))
        each = f"{plural(len(safety.seeds), 'seed')} of {safety.episodes}"
        total = len(safety.seeds) * safety.episodes
        episodes.append(f"{each}, {total:,} in all, for the safety in each of {plural(len(scenarios), 'scenario')}")
    else:
        rows.append(("parameters judged", _parameters(agent.source.own_params)))
    rows.append(("episodes judged", "; ".join(episodes)))
    rows += _limits(agent, run)
    controller = None if native is None else native.controller
    rows.append(("fallback", NO_FALLBACK if controller is None else (
        "the plant's own controller is at hand, and nothing hands over to it by itself: velocirl.safety.Shield does"
    )))  # fmt: skip
    return rows


def _parameters(params: Mapping[str, Any]) -> str:
    """Format parameters: random ones (domain randomization) by their distributions, the others as nominal."""
    drawn = {name: value for name, value in params.items() if isinstance(value, Draw)}
    fixed = {name: value for name, value in params.items() if name not in drawn}
    words = [f"drawn for each episode: {', '.join(f'{name}={one}' for name, one in drawn.items())}"] if drawn else []
    words += [f"fixed: {', '.join(f'{name}={one}' for name, one in fixed.items())}"] if fixed else []
    return "; ".join([*words, "all others nominal"]) if words else "nominal"


def _limits(agent: Agent, run: Run | None) -> Rows:
    """Return the cost limits of training, and the run's score of this model."""
    if not agent.limits:
        return [("limit that applied", "none: training sought returns alone")]
    limits = ", ".join(f"{name} at most {limit:g}" for name, limit in agent.limits.items())
    rows: Rows = [("limit that applied", f"mean cost of an episode in training: {limits}")]
    document = None if run is None else run.checkpoints().best_document()
    if document is not None and document.get("steps") == agent.steps:
        score = ModelScore.read(document.get(SCORE))
        rows.append(("judged by that limit", str(score) if score is not None else ""))
    return rows


def ranges(agent: Agent, safety: SafetyEvaluation | None, most: int) -> list[list[str]]:
    """Return the ranges of each signal: in training (of the data, or by the normalizer), and in the evaluation."""
    signals = signals_of(agent.source)[:most]
    trained, judged = _trained(agent, len(signals)), _judged(safety)
    return [
        [one.name, one.unit, trained[place] if trained else "not recorded", judged.get(one.name, "not recorded")]
        for place, one in enumerate(signals)
    ]


def _trained(agent: Agent, count: int) -> list[str]:
    if isinstance(agent, OfflineAgent):
        try:
            seen = np.asarray(agent.data.observations)
        except (ValueError, OSError):  # it is no longer available
            seen = np.zeros(0)
        if seen.ndim == 2 and len(seen):
            return [f"{low:.6g} to {high:.6g}" for low, high in zip(seen.min(0), seen.max(0), strict=True)][:count]
    moments, encoding = getattr(agent, "observation_moments", None), getattr(agent, "encoding", None)
    if moments is None or not getattr(agent.config, "normalise_observations", False):
        return []
    counts, mean, deviations = moments.state
    if not counts.all():
        return []
    deviation = np.sqrt(deviations / counts)
    if encoding is None or len(mean) != len(signals_of(agent.source)):
        return []
    return [f"{m - 3 * d:.6g} to {m + 3 * d:.6g} (mean ± 3 std)" for m, d in zip(mean, deviation, strict=True)][:count]


def _judged(safety: SafetyEvaluation | None) -> dict[str, str]:
    """Return the range of each signal in the policy's recorded episodes, over all scenarios."""
    if safety is None:
        return {}
    seen = [judged[safety.policy].trajectory for judged in safety.scenarios.values()]
    names = seen[0].signals
    values = {name: np.concatenate([one.signals[name].values for one in seen]) for name in names}
    return {name: f"{np.nanmin(one):.6g} to {np.nanmax(one):.6g}" for name, one in values.items() if len(one)}


def data_rows(agent: Agent) -> Rows:
    """Return the recorded data a policy was trained on, its size and checksum."""
    recorded = getattr(agent.config, "data", None)
    if recorded is None:
        return [("data set", "none: it learnt from its own steps")]
    rows: Rows = [("data set", recorded), ("SHA-256 of the data", agent.config.data_sha256 or "not known")]
    if isinstance(agent, OfflineAgent):
        try:
            rows.append(("transitions", f"{len(agent.data.rewards):,}, none of them by this policy"))
        except (ValueError, OSError) as error:
            rows.append(("transitions", f"not known: {error}"))
    return rows
