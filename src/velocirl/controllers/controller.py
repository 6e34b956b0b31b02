"""What every controller is to its user: bound to an environment, and asked for actions as a trained agent is."""

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
    """A rule that chooses actions, with the `predict` of a trained agent.

    It is written with the names of signals and actuators; `bind` finds them in an environment. The controller that is
    shipped with an environment is bound to it, and `evaluate` and its like bind the one that they are given.
    """

    _layout: Layout | None = None

    def bind(self, environment: Any) -> Self:
        """The same controller for an environment: its id, an Environment, or copies of one as a VectorEnv."""
        twin = copy.copy(self)
        twin._layout = layout_of(environment)
        twin.settle(twin._layout, environment)
        return twin

    @property
    def layout(self) -> Layout:
        """What it knows of its environment."""
        if self._layout is None:
            kind = type(self).__name__
            raise ValueError(f"this {kind} does not know its environment yet: {kind}(...).bind(environment)")
        return self._layout

    @abstractmethod
    def settle(self, layout: Layout, environment: Any) -> None:
        """Look up what it needs of the environment that it is bound to, and refuse one that does not fit."""

    @abstractmethod
    def act(self, observations: Any, state: Any, starts: NDArray[np.bool_], masks: Any) -> tuple[Any, Any]:
        """Actions for a batch of observations, and what is to be remembered.

        `state` is what it gave last, and None in the beginning; `starts` says for each copy whether an episode begins.
        """

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,  # noqa: ARG002 - as of a trained agent
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation, or the actions for a batch; and the state after it, where there is one.

        `state` is that of the step before, and None in the first; where `episode_start` is true, it is forgotten.
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
    """A policy ready to act in an environment: a controller bound to it, anything else as it is."""
    return policy.bind(environment) if hasattr(policy, "bind") else policy


def batch_size(space: Space[Any], observation: Any) -> int | None:
    """How many observations these are; None for a single one."""
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
    """One observation as a batch."""
    if isinstance(observation, dict):
        return {key: alone(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(alone(part) for part in observation)
    return np.asarray(observation)[None]


def first_of(actions: Any) -> Any:
    """The first action of a batch."""
    if isinstance(actions, dict):
        return {key: first_of(part) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(first_of(part) for part in actions)
    return actions[0]


def within(layout: Layout, actions: NDArray[np.float64]) -> NDArray[Any]:
    """Actions as the action space has them: clipped to it, and of its type."""
    low, high = layout.bounds
    return np.clip(actions, low, high).astype(layout.action.dtype)


def by_actuator(layout: Layout, values: dict[str | int, float], kind: str, moved: set[int]) -> NDArray[np.float64]:
    """One number for each actuator: those that are given; the others must be among those that are `moved` otherwise."""
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
