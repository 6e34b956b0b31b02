"""Estimates for given observations: values of states and actions, probabilities of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.training.actors.batching import batched
from velocirl.training.source import Source


class Estimates(Protocol):
    """Estimates of one agent, for raw observations (rows, *shape) and their masks."""

    def values(self, seen: NDArray[Any], masks: Any, state: Any, episode_start: Any) -> NDArray[Any]:
        """Return V(s) of each observation, (rows,)."""
        ...

    def probabilities(self, seen: NDArray[Any], masks: Any, state: Any, episode_start: Any) -> list[NDArray[Any]]:
        """Return the probabilities of the options of each choice, (rows, options)."""
        ...

    def action_values(self, seen: NDArray[Any], masks: Any, actions: NDArray[Any] | None) -> NDArray[Any]:
        """Return Q(s, a) of every action (rows, actions), or with `actions` (rows, ...) of those, (rows,)."""
        ...


class Estimating(ABC):
    """Base class of agents: estimates for given observations; random streams and training are not affected."""

    source: Source

    @abstractmethod
    def make_estimates(self) -> Estimates:
        """Return the estimates of this agent."""

    def value(
        self, observation: Any, state: Any = None, episode_start: Any = None, action_masks: Any = None
    ) -> float | NDArray[np.float32]:
        """Estimate the return from an observation, or from each of a batch.

        This is V(s) if the algorithm learns one (PPO, A2C, IQL and relatives), else Q(s, a) of the action that
        `predict(deterministic=True)` chooses. The unit is the unit of training rewards: with `normalise_rewards`,
        rewards in units of the running standard deviation of returns.

        Args:
            observation: One observation, or a batch.
            state: State of a recurrent network, as in `predict`.
            episode_start: Where a new episode has started, as in `predict`.
            action_masks: Allowed actions, as in `predict`.

        Returns:
            A number, or an array (batch,).
        """
        seen, masks, single = batched(self.source, observation, action_masks)
        found = self.make_estimates().values(seen, masks, state, episode_start)
        return float(found[0]) if single else found

    def action_probabilities(
        self, observation: Any, state: Any = None, episode_start: Any = None, action_masks: Any = None
    ) -> NDArray[np.float32] | tuple[NDArray[np.float32], ...]:
        """Compute the probabilities with which `predict(deterministic=False)` chooses each action.

        Args:
            observation: One observation, or a batch.
            state: State of a recurrent network, as in `predict`.
            episode_start: Where a new episode has started, as in `predict`.
            action_masks: Allowed actions, as in `predict`; others have the probability 0.

        Returns:
            An array (actions,), or (batch, actions). For actions with several choices, a tuple with such an array for
            each choice.
        """
        seen, masks, single = batched(self.source, observation, action_masks)
        found = self.make_estimates().probabilities(seen, masks, state, episode_start)
        parts = tuple(one[0] if single else one for one in found)
        return parts[0] if len(parts) == 1 else parts

    def q_values(self, observation: Any, actions: Any = None, action_masks: Any = None) -> float | NDArray[np.float32]:
        """Estimate Q(s, a): of every action if the algorithm chooses one of several, or of the given `actions`.

        With twin critics this is the smaller value, as in training targets.

        Args:
            observation: One observation, or a batch.
            actions: Actions as the environment takes them; required by algorithms with continuous actions. Several may
                be given for one observation.
            action_masks: Allowed actions, as in `predict`.

        Returns:
            An array (actions,) or (batch, actions), -inf for actions that a mask forbids. With `actions`, a number or
            an array (batch,).

        Raises:
            ValueError: If the algorithm learns no Q-values, or the numbers of observations and actions differ.
        """
        seen, masks, single = batched(self.source, observation, action_masks)
        given = None
        if actions is not None:
            given, alone = _actions(self.source, actions)
            if single and not alone:
                seen, single = np.repeat(seen, len(given), axis=0), False
                masks = None if masks is None else np.repeat(masks, len(given), axis=0)
            if len(given) != len(seen):
                raise ValueError(f"{len(seen)} observations need as many actions, got {len(given)}")
        found = self.make_estimates().action_values(seen, masks, given)
        if single:
            return float(found[0]) if found.ndim == 1 else found[0]
        return found


def refuse_forbidden(values: NDArray[Any], masks: NDArray[Any] | None) -> NDArray[Any]:
    """Return values (rows, actions) with -inf for forbidden actions; a mask that forbids all actions is ignored."""
    if masks is None:
        return values
    legal = masks != 0
    return np.where(legal | ~legal.any(axis=1, keepdims=True), values, np.float32(-np.inf))


def values_at(values: NDArray[Any], choices: NDArray[np.int64]) -> NDArray[Any]:
    """Return the entries (rows,) of values (rows, actions) at choices (rows,), counted from 0."""
    wrong = choices[(choices < 0) | (choices >= values.shape[1])]
    if len(wrong):
        raise ValueError(f"action {wrong[0]} does not exist: there are {values.shape[1]}, counted from 0")
    return np.take_along_axis(values, choices[:, None], axis=1)[:, 0]


def _actions(source: Source, actions: Any) -> tuple[NDArray[Any], bool]:
    """Return actions with a batch dimension, and whether there was only one action."""
    space = source.action_space
    shape = space.shape or ()
    given = np.asarray(actions)
    if given.shape != shape and given.shape[1:] != shape:
        raise ValueError(f"an action of {source.id} has shape {shape}, got {given.shape}")
    if not isinstance(space, Box) and given.dtype.kind not in "iu":
        raise ValueError(f"an action of {source.id} is {space}, got {given.dtype}")
    alone = given.shape == shape
    return (given[None] if alone else given), alone
