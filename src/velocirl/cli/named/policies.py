"""Policies named on a command line: the model of a run or a file, or a controller of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from velocirl.cli.named.controllers import find_controller
from velocirl.cli.named.models import find_agent_of_data, find_model
from velocirl.training.agent import Agent
from velocirl.training.source import Given
from velocirl.trajectories.policies import Policy


def find_policy(given: Mapping[str, Any], *, by_data: bool = False) -> tuple[Policy, Given | None, str]:
    """Find a controller or the model of a run; returns it, its environment (None: as in training) and its name.

    With `by_data` the policy does not act, so a model trained on data needs no environment.
    """
    if "controller" in given:
        controller, chosen = find_controller(given)
        return controller, chosen.environment, given["controller"]
    if by_data and (of_data := find_agent_of_data(given)) is not None:
        return of_data[0], None, of_data[1]
    state, chosen, source = find_model(given)
    return Agent.from_state(state, chosen.environment, source), None, source
