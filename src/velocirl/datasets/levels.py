"""Datasets by level: random actions, the operator's controller, or agents in training up to an expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.file import require_place
from velocirl.buffers.data.info import LEVELS
from velocirl.controllers import Random
from velocirl.datasets.record import Progress, info_of, record_parts
from velocirl.datasets.references import described, measure_references, returns_of
from velocirl.engine.counts import require_count
from velocirl.runs.callback import Callback
from velocirl.training.agent import Agent
from velocirl.training.evaluation import Model
from velocirl.training.persistence import algorithm_from
from velocirl.training.source import Given, Source
from velocirl.trajectories.policies import Policy, model_from, name_of
from velocirl.trajectories.rollout import in_scenario

SNAPSHOTS = 20  # of one training run, equally spaced
EPISODES = 20  # to score each snapshot; the expert is measured again from other starts
RANDOM_EPISODES = 100
MEDIUM = 50.0  # score that a medium policy reaches: random actions score 0, the expert 100
ALGORITHMS = ("ppo", "sac", "td3", "dqn")  # the first with a preset for the environment trains its expert
TRAINING_STEPS = 1_000_000  # if the preset has none


class Snapshot:
    """Agent at one moment of its training, as a policy."""

    def __init__(self, agent: Agent, stage: dict[str, Any]) -> None:
        """Create a snapshot; snapshots of one agent share a `stage`, which records whose arrays are loaded."""
        self._agent, self._stage, self._arrays = agent, stage, agent.policy_arrays()

    def predict(self, observation: Any, **more: Any) -> tuple[Any, Any]:
        """Compute actions with the snapshot's arrays."""
        if self._stage.get("playing") is not self:
            self._agent.load_policy_arrays(self._arrays)
            self._stage["playing"] = self
        return self._agent.predict(observation, **more)


class KeepSnapshots(Callback):
    """Callback that keeps equally spaced snapshots of an agent during training."""

    def __init__(self, total: int, count: int = SNAPSHOTS, watch: Progress | None = None) -> None:
        self.kept: list[Snapshot] = []
        self._total, self._watch = total, watch
        self._stage: dict[str, Any] = {}
        self._times = list(np.linspace(0, total, count + 1).astype(int))

    def start(self, agent: Agent) -> None:
        """Keep a snapshot of the initial agent."""
        self.step(agent)

    def step(self, agent: Agent) -> bool | None:
        """Keep a snapshot if one is due."""
        if self._times and agent.steps >= self._times[0]:
            self.kept.append(Snapshot(agent, self._stage))
            self._times = [time for time in self._times if time > agent.steps]
        if self._watch is not None:
            self._watch(min(agent.steps, self._total), self._total)
        return None


def create_dataset(
    level: str,
    env: Given,
    *,
    steps: int,
    path: str | Path | None = None,
    seed: int = 0,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
    expert: Policy | None = None,
    medium: Policy | None = None,
    algorithm: str | None = None,
    training_steps: int | None = None,
    trained: Trained | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    watch_training: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Record a dataset of a level in a native environment, with the reference returns of its expert.

    - `random`: uniform actions; `operator`: the controller that the environment ships with;
    - `expert`: the best snapshot of a training run; `medium`: the first that reaches half its score;
    - `mixed`: random, medium and expert in equal parts; `replay`: all 21 snapshots in equal parts, as in training.

    An `expert` and a `medium` policy may be passed: agents, runs or files. Otherwise `algorithm` is trained with its
    preset, for `training_steps` or the preset's number; `watch_training` receives its progress. Pass `trained`, from
    `train_levels`, to share one training run between levels. With a `scenario` or `params`, policies are trained,
    measured and recorded there. Other `options` are `noise`, `deterministic` and `device`, as in `record_dataset`. An
    existing file is replaced only with `overwrite=True`.
    """
    if level not in LEVELS:
        raise ValueError(f"the levels of data sets are {', '.join(LEVELS)}, got {level!r}")
    steps = require_count("steps", steps)
    if path is not None:
        require_place(Path(path), overwrite=overwrite)
    source = in_scenario(Source(env), scenario, params)
    if source.native is None:
        raise ValueError(f"levels are for environments of ours, and {source.id} steps in Python: use record_dataset")
    if level == "operator" and source.native.controller is None:
        raise ValueError(f"{source.id} comes with no controller, so there is no operator: choose another level")
    given = {name: model_from(one, env) for name, one in (("expert", expert), ("medium", medium)) if one is not None}
    words = f"{level} level, of given policies"
    parts: list[Model] = []
    if level in ("random", "operator"):
        parts = [Random(seed) if level == "random" else source.native.controller]
        words = name_of(parts[0])
    else:
        needed = {"medium": ("medium", "expert"), "mixed": ("medium", "expert")}.get(level, ("expert",))
        if level == "replay" or any(name not in given for name in needed):
            if trained is None:
                trained = train_levels(
                    env, algorithm, training_steps, seed, watch_training, scenario=scenario, params=params
                )
            given = {"medium": trained.medium, "expert": trained.expert, **given}
            words = f"{level} level of {trained.algorithm} in {trained.steps:,} steps"
            parts = list(trained.snapshots)
        if level != "replay":
            parts = [Random(seed), given["medium"], given["expert"]] if level == "mixed" else [given[level]]
    references = measure_references(source, given.get("expert"), seed, device=options.get("device", "cpu"))
    info = replace(info_of(source), level=level, seed=seed, policy=words, **described(references))
    shares = np.diff(np.linspace(0, steps, len(parts) + 1).astype(int)).tolist()
    planned = [(part, share) for part, share in zip(parts, shares, strict=True) if share]
    return record_parts(planned, source, info, path, seed, overwrite=overwrite, progress=progress, **options)


@dataclass(frozen=True)
class Trained:
    """Snapshots of one training run, including the medium and the expert."""

    algorithm: str
    steps: int
    snapshots: tuple[Snapshot, ...]
    medium: Snapshot
    expert: Snapshot


def train_levels(
    env: Given,
    algorithm: str | None = None,
    training_steps: int | None = None,
    seed: int = 0,
    watch: Progress | None = None,
    *,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Trained:
    """Train by an environment's preset, or for `training_steps`; returns snapshots with the medium and the expert."""
    source = in_scenario(Source(env), scenario, params)
    presets = {} if source.native is None else source.native.presets
    name = algorithm or next((one for one in ALGORITHMS if one in presets), ALGORITHMS[0])
    agent = algorithm_from(name)(env, seed=seed, scenario=scenario, params=dict(params or {}))
    total = presets.get(name, {}).get("total_steps", TRAINING_STEPS)
    total = require_count("training_steps", training_steps or total)
    kept = KeepSnapshots(total, watch=watch)
    agent.learn(total, kept, progress=None if watch is None else False)
    returns = [float(returns_of(one, source, seed, EPISODES).mean()) for one in kept.kept]
    random_return = float(returns_of(Random(seed), source, seed, RANDOM_EPISODES).mean())
    best = int(np.argmax(returns))
    if returns[best] <= random_return:
        raise ValueError(
            f"{name} returns {returns[best]:.6g} after {total:,} steps, and random actions {random_return:.6g}: train"
            " longer, choose another algorithm, or give an expert"
        )
    medium = halfway(returns, random_return)
    return Trained(name, total, tuple(kept.kept), kept.kept[medium], kept.kept[best])


def halfway(returns: list[float], random_return: float) -> int:
    """Return the index of the first snapshot between `MEDIUM` and the best score, else of the nearest to `MEDIUM`."""
    best = max(returns)
    scores = [100.0 * (one - random_return) / (best - random_return) for one in returns]
    reached = [place for place, score in enumerate(scores) if MEDIUM <= score < 100.0]
    return reached[0] if reached else int(np.argmin([abs(score - MEDIUM) for score in scores]))
