"""Policies as models: an agent, a controller, the path of a run or model, or a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from velocirl.training.agent import Agent, load
from velocirl.training.evaluation import Model, Rule
from velocirl.training.source import Given

Policy = Model | Callable[[Any], Any] | str | Path


def model_from(policy: Policy, env: Given | None = None) -> Model:
    """Return the model of a policy; a path or name refers to a run or a model, as in `velocirl.load`."""
    if isinstance(policy, (str, Path)):
        return cast("Model", load(policy, env, memory=False))
    if hasattr(policy, "predict"):
        return cast("Model", policy)
    if callable(policy):
        return Rule(policy)
    raise TypeError(
        f"a {type(policy).__name__} cannot act: give an agent, a controller, the path of a run or model, or a function"
        " of an observation"
    )


def name_of(policy: Policy) -> str:
    """Return the display name of a policy."""
    if isinstance(policy, (str, Path)):
        return Path(policy).name
    if isinstance(policy, Agent):
        return policy.name
    name = getattr(policy, "__name__", type(policy).__name__)
    return "function" if name == "<lambda>" else name
