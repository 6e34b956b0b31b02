"""Rollouts: a policy acts for whole episodes, and everything is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.engine.counts import require_count
from velocirl.training.evaluation import MOST_COPIES, MOST_HOST_COPIES, Model
from velocirl.training.source import Given, Source
from velocirl.trajectories.moments import Recorder
from velocirl.trajectories.policies import Policy, model_from, name_of
from velocirl.trajectories.trajectory import Trajectory
from velocirl.vector.autoreset import Disabled, NextStep
from velocirl.vector.given_vector import GivenVectorEnv, mode_of
from velocirl.vector.native import FleetVectorEnv

MOST_STEPS = 100_000  # of an episode without a time limit


def rollout(
    policy: Policy,
    env: Given | None = None,
    episodes: int = 1,
    seed: int | None = 0,
    *,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    device: str = "cpu",
) -> Trajectory:
    """Let a policy act for whole episodes. Returns everything recorded, as arrays with names and units.

    A policy is an agent, a controller, the path of a run or of a model, or a function that returns the action for one
    observation. The default `env` is the one it was trained in. `scenario` is one of the environment's own; `params`
    override its values. An episode is truncated after `max_steps`. With `device="python"` the environment runs
    uncompiled.
    """
    episodes = require_count("episodes", episodes)
    max_steps = None if max_steps is None else require_count("max_steps", max_steps)
    if isinstance(env, VectorEnv):
        if scenario is not None or params:
            raise ValueError("scenario and params are for copies that are made here: set them where you make yours")
        recorder = _recorded(model_from(policy), _same_step(env), episodes, seed, max_steps, deterministic)
        return recorder.trajectory(policy=name_of(policy), seed=seed)
    model = model_from(policy, env)
    source = in_scenario(source_for(model, env), scenario, params)
    options = {"deterministic": deterministic, "max_steps": max_steps, "device": device}
    return played(model, source, episodes, seed, policy=name_of(policy), scenario=scenario, **options)


def played(
    model: Model,
    source: Source,
    episodes: int,
    seed: int | None,
    *,
    deterministic: bool = True,
    max_steps: int | None = None,
    device: str = "cpu",
    **about: Any,
) -> Trajectory:
    """Record a model in environments created for it."""
    most = MOST_HOST_COPIES if source.native is None else MOST_COPIES
    with closing(source.make_evaluation(min(episodes, most), seed, device)) as envs:
        # The first reset uses the seed they were created with.
        recorder = _recorded(model, envs, episodes, None, max_steps, deterministic)
        return recorder.trajectory(seed=seed, **about)


def source_for(model: Model, env: Given | None) -> Source:
    """Return the environment to act in: `env`, preprocessed as in training, or the training environment."""
    trained_in: Source | None = getattr(model, "source", None)
    if env is not None:
        return Source(env, None, getattr(trained_in, "frames", None), getattr(trained_in, "preprocess", None))
    if trained_in is None:
        raise ValueError("say in which environment this policy is to act: rollout(policy, env)")
    return trained_in


def in_scenario(source: Source, scenario: str | None, params: Mapping[str, Any] | None = None) -> Source:
    """Return the source in a scenario (default: the training scenario), with overriding parameters."""
    if scenario is None and not params:
        return source
    chosen = source.scenario if scenario is None else scenario
    return source.operated({**source.own_params, **(params or {})}, chosen)


def _recorded(
    model: Model, envs: VectorEnv, episodes: int, seed: int | None, max_steps: int | None, deterministic: bool
) -> Recorder:
    recorder = Recorder(envs, max_steps or MOST_STEPS)
    while recorder.episodes < episodes:
        recorder.record(model, episodes - recorder.episodes, seed, deterministic=deterministic)
        seed = None
    return recorder


def _same_step(envs: VectorEnv) -> VectorEnv:
    """Return external environments such that new episodes begin in the same step."""
    inner = envs.env if isinstance(envs, (NextStep, Disabled)) else envs
    if isinstance(inner, FleetVectorEnv) or mode_of(envs) == AutoresetMode.SAME_STEP:
        return inner
    return GivenVectorEnv(envs)
