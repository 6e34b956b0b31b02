"""Conversion of an agent to a controller, from its network, head and spaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.deployment.controller import (
    Choice,
    Code,
    Controller,
    Input,
    Module,
    Network,
    Normalised,
    Number,
    Numbers,
    Signal,
    Table,
)
from velocirl.deployment.layers import mlp_layers
from velocirl.engine.action_parts import parts_of
from velocirl.networks.encoding import Encoding
from velocirl.networks.mlp import MLP
from velocirl.networks.observations import raw_space
from velocirl.program.rows.commands import CENTRE, HIGH, LOW, REACH, bounds_of
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.tables.table import NOBODY
from velocirl.training.agent import Agent
from velocirl.training.deep_agent import DeepAgent
from velocirl.trajectories.channels import channels_of

CHOICES = ("categorical", "multi_discrete", "epsilon_greedy", "by_values")  # heads with one option per output
# Heads of numbers, and whether they are squashed.
NUMBERS = {"gaussian": False, "squashed_gaussian": True, "squashed_value": True, "gaussian_within": True}
JOINT = "joint"


def read_controller(agent: Agent) -> Controller:
    """Return the controller of an agent; raise for policies that no file format supports, by name."""
    if isinstance(agent, TabularAgent):
        return _controller(agent, (), _table(agent), actions_of(agent), agent.source.masked)
    if not isinstance(agent, DeepAgent):
        raise TypeError(f"only agents with a network or a table can be exported, not {type(agent).__name__}")
    actions = actions_of(agent)
    policy = _policy(agent, actions)
    if isinstance(policy, Network):  # whose columns are averaged already
        actions = _renumbered(actions)
    inputs = _inputs(agent.encoding, agent.observation_moments)
    return _controller(agent, inputs, policy, actions, agent.head.masked)


def _controller(agent: Agent, inputs: Any, policy: Any, actions: Any, masked: bool) -> Controller:
    from velocirl import __version__

    source = agent.source
    return Controller(
        environment=source.id,
        algorithm=agent.name,
        steps=agent.steps,
        counted=agent.counted,
        version=__version__,
        observation_space=source.observation_space,
        action_space=source.action_space,
        signals=signals_of(source),
        inputs=inputs,
        policy=policy,
        actions=actions,
        masked=masked,
    )


def signals_of(source: Any) -> tuple[Signal, ...]:
    """Return the numbers of an observation; for stacked frames, the oldest first."""
    size = int(np.prod(raw_space(source.observation_space)[0]))
    names, units = _named(source.observation_space, "observation", source, "signals")
    if not names or size % len(names):
        return tuple(Signal(f"observation[{k}]", "") for k in range(size))
    frames = size // len(names)
    ages = [f", {age} before" if age else "" for age in reversed(range(frames))]
    return tuple(Signal(f"{name}{age}", unit) for age in ages for name, unit in zip(names, units, strict=True))


def _named(space: Space[Any], kind: str, source: Any, what: str) -> tuple[Sequence[str], Sequence[str]]:
    given = {} if source.native is None else getattr(source.native, what)
    _, names, units = channels_of(space, kind, given)
    return names, units


def _inputs(encoding: Encoding, moments: Any) -> tuple[Input, ...]:
    """Return the encoding, leaf by leaf; numbers that are only multiplied by one factor become `Numbers`."""
    affine = encoding.affine(moments.mean, moments.inverse_deviation)
    found: list[Input] = []
    for part in encoding.parts:
        starts = encoding.table["start"]
        fields = encoding.table[(part.start <= starts) & (starts < part.start + part.size)]
        if fields["code"].any():
            found += [Code(int(one["raw"]), int(one["first"]), int(one["width"])) for one in fields]
            continue
        first, at = int(fields["raw"][0]), slice(part.start, part.start + part.size)
        centre, scale, limit = (column[at].copy() for column in affine)
        if fields["normalised"].any():
            found.append(Normalised(first, centre, scale, float(limit[0])))
        elif (centre == 0).all() and (scale == scale[0]).all():
            found.append(Numbers(first, part.size, float(scale[0])))
        else:
            found.append(Normalised(first, centre, scale, None))
    return tuple(found)


def actions_of(agent: Agent) -> tuple[Choice | Number, ...]:
    """Return the entries of an action, in the order of its space; a head has all choices before all numbers."""
    source = agent.source
    if isinstance(agent, TabularAgent):
        names, units = _named(source.action_space, "action", source, "actuators")
        return (Choice(names[0], units[0], 0, agent.actions, agent.first_action),)
    if not isinstance(agent, DeepAgent):
        raise TypeError(f"only agents with a network or a table have a policy to look into, not {type(agent).__name__}")
    head = agent.head
    if head.name not in (*CHOICES, *NUMBERS, JOINT):
        raise ValueError(f"a head that is called {head.name!r} cannot be exported: no file says how it acts")
    space, squashed = source.action_space, NUMBERS.get(head.name, False)
    names, units = _named(space, "action", source, "actuators")
    column, number = 0, sum(head.counts[:-1]) if head.name == JOINT else 0
    found: list[Choice | Number] = []
    for part in parts_of(space):
        bounds = None if part.counts else bounds_of(part.space)  # pyright: ignore[reportArgumentType]
        for k in range(part.size):
            called = names[len(found)], units[len(found)]
            if bounds is None:
                found.append(Choice(*called, column, part.counts[k], part.starts[k], head.columns))
                column += part.counts[k]
            else:
                low, high, centre, reach = (float(bounds[row, k]) for row in (LOW, HIGH, CENTRE, REACH))
                found.append(Number(*called, number, squashed, low, high, centre, reach))
                number += 1
    return tuple(found)


def _columns(actions: Sequence[Choice | Number]) -> list[list[int]]:
    """Return the network columns to average for each output that an action needs; choices first."""
    found: list[list[int]] = []
    for one in actions:
        if isinstance(one, Choice):
            options = range(one.column, one.column + one.count)
            found += [list(range(k * one.columns, (k + 1) * one.columns)) for k in options]
    return found + [[one.column] for one in actions if isinstance(one, Number)]


def _renumbered(actions: Sequence[Choice | Number]) -> tuple[Choice | Number, ...]:
    """Return the entries with columns that refer to the outputs of `_columns`."""
    number = sum(one.count for one in actions if isinstance(one, Choice))
    found: list[Choice | Number] = []
    for one in actions:
        if isinstance(one, Choice):
            found.append(dataclasses.replace(one, columns=1))
        else:
            found.append(dataclasses.replace(one, column=number))
            number += 1
    return tuple(found)


def _policy(agent: DeepAgent, actions: Sequence[Choice | Number]) -> Network | Module:
    network, wanted = agent.network, _columns(actions)
    if isinstance(network, MLP):
        parameters = agent.parameters
        require_finite(parameters)
        return Network(mlp_layers(network, parameters, wanted))
    from velocirl.deployment.torch_reading import read_module  # needs torch

    require_finite(agent.parameters)
    return read_module(agent.policy.built.held, wanted)


def require_finite(parameters: NDArray[Any]) -> None:
    """Raise for a policy with non-finite parameters."""
    if not np.isfinite(parameters).all():
        raise ValueError("the policy has parameters that are not finite, by which no controller should act")


def _table(agent: TabularAgent) -> Table:
    table = agent.table
    values = agent.parameters.reshape(-1, table.sets, agent.actions).mean(axis=1)
    require_finite(values)
    if not table.sparse:
        return Table(agent.states.sizes, agent.states.starts, None, values.copy())
    keys = table.keys
    known = np.flatnonzero(keys != NOBODY)
    order = known[np.argsort(keys[known])]
    return Table(agent.states.sizes, agent.states.starts, keys[order].copy(), values[order])
