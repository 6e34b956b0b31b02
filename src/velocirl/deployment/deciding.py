"""Reference implementation of a controller in plain NumPy, and its comparison with the agent."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from velocirl.deployment.controller import Choice, Code, Controller, Layer, Module, Network, Normalised, Table
from velocirl.engine.action_parts import parts_of
from velocirl.networks.activations import activation_from
from velocirl.networks.observations import leaves_of, raw_space, write_raw
from velocirl.training.agent import Agent

ROWS = 64  # observations on which a controller is compared with its agent
FAR = 1e6  # larger bounds are no useful range
TOLERANCE = 1e-4  # of an output, relative to the largest: sums are computed in another order


def decide(controller: Controller, observations: NDArray[Any], masks: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the actions (rows, entries) for raw rows of observations (rows, numbers)."""
    if isinstance(controller.policy, Table):
        return _by_table(controller, controller.policy, observations, masks)
    return actions_from(controller, outputs_of(controller, observations), masks)


def outputs_of(controller: Controller, observations: NDArray[Any]) -> NDArray[np.float32]:
    """Return the outputs of the network, (rows, outputs)."""
    values = encoded(controller, observations)
    if isinstance(controller.policy, Module):
        from velocirl.deployment.torch_reading import module_outputs  # needs torch

        return module_outputs(controller.policy, values)
    assert isinstance(controller.policy, Network)  # noqa: S101 - tables have no outputs
    for layer in controller.policy.layers:
        values = _through(layer, values)
    return values


def encoded(controller: Controller, observations: NDArray[Any]) -> NDArray[np.float32]:
    """Return the inputs of the network, (rows, inputs)."""
    parts: list[NDArray[Any]] = []
    for one in controller.inputs:
        if isinstance(one, Code):
            options = np.arange(one.start, one.start + one.size)
            parts.append(observations[:, one.first, None] == options)
            continue
        numbers = observations[:, one.first : one.first + one.size].astype(np.float32)
        if isinstance(one, Normalised):
            scaled = (numbers - one.centre) * one.inverse_scale
            parts.append(scaled if one.limit is None else np.clip(scaled, -one.limit, one.limit))
        else:
            parts.append(numbers * np.float32(one.factor))
    return np.concatenate(parts, axis=1).astype(np.float32)


def actions_from(controller: Controller, outputs: NDArray[Any], masks: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the actions (rows, entries) for these outputs."""
    found = np.zeros((len(outputs), len(controller.actions)))
    for place, one in enumerate(controller.actions):
        if isinstance(one, Choice):
            found[:, place] = one.start + _worth(one, outputs, masks).argmax(axis=1)
        else:
            value = np.tanh(outputs[:, one.column]) if one.squashed else outputs[:, one.column]
            found[:, place] = np.float32(one.centre) + np.float32(one.reach) * np.clip(value, one.low, one.high)
    return found


def require_same(controller: Controller, agent: Agent) -> None:
    """Raise if a controller acts differently from its agent, on random observations."""
    observations, raw = _drawn(controller)
    theirs = _entries(controller, agent.predict(observations, deterministic=True)[0])
    ours = decide(controller, raw)
    if isinstance(controller.policy, Table):
        same = np.array_equal(ours, theirs)
    else:
        outputs = outputs_of(controller, raw)
        same = all(
            (ours[:, place] == theirs[:, place])[_clear(one, outputs)].all()
            if isinstance(one, Choice)
            else np.allclose(ours[:, place], theirs[:, place], rtol=0, atol=TOLERANCE * _size(one, ours[:, place]))
            for place, one in enumerate(controller.actions)
        )
    if not same:
        raise RuntimeError(
            f"what was read of this {agent.name} agent does not act as it does, so nothing is written: this is a"
            " mistake of velocirl's; please report it with the model"
        )


def _through(layer: Layer, values: NDArray[np.float32]) -> NDArray[np.float32]:
    made = values @ layer.real_weights.T + layer.biases
    if layer.norm is not None:
        apart = made - made.mean(axis=1, keepdims=True)
        spread = np.sqrt((apart * apart).mean(axis=1, keepdims=True) + np.float32(layer.norm.epsilon))
        made = apart / spread * layer.norm.scale + layer.norm.shift
    return np.vectorize(activation_from(layer.activation).value, otypes=[np.float32])(made)


def _by_table(controller: Controller, table: Table, observations: Any, masks: Any) -> NDArray[Any]:
    weights = [prod(table.sizes[k + 1 :]) for k in range(len(table.sizes))]
    states = (observations.astype(np.int64) - np.array(table.starts)) @ np.array(weights, np.int64)
    if table.keys is None:
        values = table.values[states]
    else:
        places = np.searchsorted(table.keys, states)
        places = np.minimum(places, max(len(table.keys) - 1, 0))
        met = (table.keys[places] == states)[:, None] if len(table.keys) else np.zeros((len(states), 1), bool)
        values = np.where(met, table.values[places] if len(table.keys) else 0.0, 0.0)
    return actions_from(controller, values, masks)


def _worth(one: Choice, outputs: NDArray[Any], masks: NDArray[Any] | None) -> NDArray[Any]:
    """Return the values of options, (rows, options); -inf for those that a mask forbids, unless it forbids all."""
    first, count = one.column, one.count
    worth = outputs[:, first * one.columns : (first + count) * one.columns]
    worth = worth.reshape(len(outputs), count, one.columns).mean(axis=2)
    if masks is None:
        return worth
    legal = masks[:, first : first + count] != 0
    return np.where(legal | ~legal.any(axis=1, keepdims=True), worth, -np.inf)


def _clear(one: Choice, outputs: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether the best option is better by more than rounding, (rows,)."""
    worth = np.sort(_worth(one, outputs, None), axis=1)
    if one.count == 1:
        return np.ones(len(worth), bool)
    return worth[:, -1] - worth[:, -2] > TOLERANCE * np.maximum(np.abs(worth).max(axis=1), 1.0)


def _size(one: Any, values: NDArray[Any]) -> float:
    return max(one.reach, float(np.abs(values).max()))


def _drawn(controller: Controller) -> tuple[Any, NDArray[Any]]:
    """Sample observations of the space. Returns them as `predict` takes them, and as raw rows."""
    space, generator = controller.observation_space, np.random.default_rng(0)
    drawn: Any = create_empty_array(space, ROWS)
    for leaf in leaves_of(space):
        inside = drawn
        for key in leaf.path:
            inside = inside[key]
        inside[...] = _numbers(leaf.space, inside.shape, generator)
    shape, dtype = raw_space(space)
    raw = np.zeros((ROWS, *shape), dtype)
    write_raw(space, drawn, raw)
    return drawn, raw.reshape(ROWS, -1)


def _numbers(space: Any, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[Any]:
    """Sample values of a leaf: within its bounds if these are close, else around zero."""
    if isinstance(space, Discrete):
        return generator.integers(space.start, space.start + space.n, shape)
    if isinstance(space, (MultiDiscrete, MultiBinary)):
        counts = space.nvec if isinstance(space, MultiDiscrete) else np.full(space.shape, 2)
        return getattr(space, "start", 0) + (generator.random(shape) * counts).astype(np.int64)
    low, high = (np.broadcast_to(end.astype(np.float64), shape) for end in (space.low, space.high))
    near = (np.maximum(np.abs(low), np.abs(high)) <= FAR).astype(bool)
    within = np.where(near, low, 0.0) + (np.where(near, high, 0.0) - np.where(near, low, 0.0)) * generator.random(shape)
    around = np.clip(3.0 * generator.standard_normal(shape), low, high)
    values = np.where(near, within, around)
    return np.rint(values) if np.dtype(space.dtype).kind in "iu" else values


def _entries(controller: Controller, actions: Any) -> NDArray[Any]:
    """Return batched actions as rows of their entries."""
    parts = []
    for part in parts_of(controller.action_space):
        inside = actions
        for key in part.path:
            inside = inside[key]
        parts.append(np.asarray(inside).reshape(ROWS, -1))
    return np.concatenate(parts, axis=1).astype(np.float64)
