"""Base class of controllers: binding to an environment, and the `predict` of a trained agent."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Tuple
from numpy.typing import NDArray

from velocirl.controllers.layout import Layout, layout_of


class Controller(ABC):
    """Rule that chooses actions, with a trained agent's `predict`.

    It is written with the names of signals and actuators; `bind` resolves them in an environment. A controller that an
    environment ships with is already bound to it. `evaluate` and similar functions bind the controller that they are
    passed.
    """

    _layout: Layout | None = None

    def bind(self, environment: Any) -> Self:
        """Return a copy of the controller bound to an environment: an id, an Environment or a VectorEnv."""
        twin = copy.copy(self)
        twin._layout = layout_of(environment)
        twin.settle(twin._layout, environment)
        return twin

    @property
    def layout(self) -> Layout:
        """Spaces and names of the bound environment."""
        if self._layout is None:
            kind = type(self).__name__
            raise ValueError(f"this {kind} does not know its environment yet: {kind}(...).bind(environment)")
        return self._layout

    @abstractmethod
    def settle(self, layout: Layout, environment: Any) -> None:
        """Look up signals and actuators in the environment; raise if the controller does not fit it."""

    @abstractmethod
    def act(self, observations: Any, state: Any, starts: NDArray[np.bool_], masks: Any) -> tuple[Any, Any]:
        """Compute actions for a batch of observations; returns the actions and the next state.

        `state` is the state returned by the previous call, None at first. `starts` marks the environments whose episode
        begins.
        """

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,  # noqa: ARG002 - as of a trained agent
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Compute the action for one observation or the actions for a batch; returns them and the next state.

        `state` is the state returned for the previous step, None for the first. It is reset where `episode_start` is
        true.
        """
        space = self.layout.observation
        count = batch_size(space, observation)
        rows = count or 1
        if state is None or episode_start is None:
            starts = np.full(rows, state is None)
        else:
            starts = np.broadcast_to(np.asarray(episode_start, np.bool_), (rows,))
        batch, masks = observation, action_masks
        if count is None:
            batch = alone(observation)
            masks = None if action_masks is None else np.asarray(action_masks)[None]
        actions, state = self.act(batch, state, starts, masks)
        return (first_of(actions) if count is None else actions), state


def bound(policy: Any, environment: Any) -> Any:
    """Return a policy ready to act in an environment: controllers are bound, other policies returned as they are."""
    return policy.bind(environment) if hasattr(policy, "bind") else policy


def batch_size(space: Space[Any], observation: Any) -> int | None:
    """Return the number of observations in a batch; None for a single observation."""
    if isinstance(space, Dict):
        key = next(iter(space.spaces))
        return batch_size(space[key], observation[key])
    if isinstance(space, Tuple):
        return batch_size(space[0], observation[0])
    shape, given = space.shape or (), np.shape(observation)
    if given == shape:
        return None
    if len(given) != len(shape) + 1 or given[1:] != shape:
        raise ValueError(f"an observation has shape {shape}, got {given}")
    return given[0]


def alone(observation: Any) -> Any:
    """Return one observation as a batch of 1."""
    if isinstance(observation, dict):
        return {key: alone(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(alone(part) for part in observation)
    return np.asarray(observation)[None]


def first_of(actions: Any) -> Any:
    """Return the first action of a batch."""
    if isinstance(actions, dict):
        return {key: first_of(part) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(first_of(part) for part in actions)
    return actions[0]


def within(layout: Layout, actions: NDArray[np.float64]) -> NDArray[Any]:
    """Clip actions to the action space's bounds and cast them to its dtype."""
    low, high = layout.bounds
    return np.clip(actions, low, high).astype(layout.action.dtype)


def by_actuator(layout: Layout, values: dict[str | int, float], kind: str, moved: set[int]) -> NDArray[np.float64]:
    """Return one value per actuator from `values`; raise for actuators in neither `values` nor `moved`."""
    numbers = np.zeros(layout.action.shape or (), np.float64)
    given = {layout.actuator(name): float(value) for name, value in values.items()}
    low, high = layout.bounds
    for place in range(len(numbers)):
        name = layout.actuators[place] if layout.actuators else place
        if place in given:
            numbers[place] = given[place]
            if not low[place] <= given[place] <= high[place]:
                raise ValueError(f"{layout.id}: {name} is to be {given[place]}, outside {low[place]} to {high[place]}")
        elif place not in moved:
            raise ValueError(f"{layout.id}: this {kind} says nothing of the actuator {name!r}: add it to bias={{...}}")
    return numbers
