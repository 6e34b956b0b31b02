"""Letting a policy act for whole episodes, and writing down everything that happens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.training.evaluation import MOST_COPIES, MOST_HOST_COPIES, Model
from velocirl.training.source import Given, Source
from velocirl.trajectories.moments import Recorder
from velocirl.trajectories.policies import Policy, model_from, name_of
from velocirl.trajectories.trajectory import Trajectory
from velocirl.vector.autoreset import Disabled, NextStep
from velocirl.vector.given_vector import GivenVectorEnv, mode_of
from velocirl.vector.native import FleetVectorEnv

MOST_STEPS = 100_000  # of an episode of which nobody says when it is over


def rollout(
    policy: Policy,
    env: Given | None = None,
    episodes: int = 1,
    seed: int | None = 0,
    *,
    params: Mapping[str, Any] | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> Trajectory:
    """Let a policy act for whole episodes; gives everything that happened, as arrays with names and units.

    A policy is an agent, a controller, the path of a run or of a model, or a function that gives the action for one
    observation. Without `env` it acts where it was trained. An episode is cut off after `max_steps`.
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    model = model_from(policy, None if isinstance(env, VectorEnv) else env)
    with _copies(model, env, episodes, seed, params) as envs:
        recorder = Recorder(envs, max_steps or MOST_STEPS)
        # Copies that are made here have their seed already, which is that of their first reset.
        first = seed if isinstance(env, VectorEnv) else None
        while recorder.episodes < episodes:
            recorder.record(model, episodes - recorder.episodes, first, deterministic=deterministic)
            first = None
        return recorder.trajectory(policy=name_of(policy), seed=seed)


def _copies(
    model: Model, env: Given | None, episodes: int, seed: int | None, params: Mapping[str, Any] | None
) -> AbstractContextManager[VectorEnv]:
    """Copies in which new episodes begin in the same step; those that somebody made are not closed."""
    if isinstance(env, VectorEnv):
        if params:
            raise ValueError("params are for copies that are made here: set them where you make yours")
        inner = env.env if isinstance(env, (NextStep, Disabled)) else env
        native = isinstance(inner, FleetVectorEnv)
        return nullcontext(inner if native or mode_of(env) == AutoresetMode.SAME_STEP else GivenVectorEnv(env))
    source = source_for(model, env, params)
    most = MOST_HOST_COPIES if source.native is None else MOST_COPIES
    return closing(source.make_evaluation(min(episodes, most), seed))


def source_for(model: Model, env: Given | None, params: Mapping[str, Any] | None) -> Source:
    """Where a model acts: in `env`, seen as it was in training, or in what it was trained in."""
    trained_in = getattr(model, "source", None)
    if env is None:
        if trained_in is None:
            raise ValueError("say in which environment this policy is to act: rollout(policy, env)")
        return trained_in.with_params({**trained_in.params, **params}) if params else trained_in
    return Source(env, params, getattr(trained_in, "frames", None), getattr(trained_in, "preprocess", None))
