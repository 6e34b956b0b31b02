"""The shield around a policy: what it asks for is done where that is safe."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers import bound
from velocirl.controllers.controller import alone, batch_size, first_of
from velocirl.controllers.layout import layout_of
from velocirl.safety.action_filter import ActionFilter, Filtered, predicted
from velocirl.training.evaluation import Rule


@dataclass
class Interventions:
    """What a shield did so far, in actions of single copies."""

    actions: int = 0
    replaced: int = 0  # by the nearest safe one, or by the fallback's
    emergencies: int = 0  # where no action was found to be safe

    def count(self, filtered: Filtered) -> None:
        """Add those of one decision."""
        self.actions += len(filtered.replaced)
        self.replaced += int(np.count_nonzero(filtered.replaced))
        self.emergencies += int(np.count_nonzero(filtered.emergency))


class Shield:
    """A policy whose unsafe actions are replaced by the nearest safe ones, with the same `predict`.

    The policy is an agent, a controller, or a function of an observation. What an action leads to is predicted with
    copies of the plant, over `horizon` steps: the action, and after it what the `fallback` does (`then="hold"`: the
    same again). The fallback is a controller, without one that which is shipped with the environment; where no
    candidate is safe, it acts. `constraints` names those that are kept: without names the critical ones, or all.

    The plant's state is read from the copies that the shield is bound to (`evaluate` does that), or comes from
    `estimate`, a function that gives fields of the state for a batch of observations. `mismatch` has factors
    for parameters of the model by name, to see what is left of the shield where its model is wrong.
    """

    def __init__(self, policy: Any, fallback: Any = None, **options: Any) -> None:
        """`options` are those of `ActionFilter`."""
        if not hasattr(policy, "predict"):
            if not callable(policy):
                raise TypeError(f"a {type(policy).__name__} cannot act: give a policy with predict, or a function")
            policy = Rule(policy)
        self.policy, self._fallback, self._options = policy, fallback, options
        self.interventions = Interventions()
        self._filter: ActionFilter | None = None
        self._space: Any = None  # of observations

    @property
    def source(self) -> Any:
        """Where its policy was trained, so that it is evaluated there unless somebody says otherwise."""
        return getattr(self.policy, "source", None)

    def bind(self, environment: Any) -> Self:
        """The same shield for an environment, or for copies whose state it may read; what it counts is shared."""
        twin = copy.copy(self)
        twin.policy = bound(self.policy, environment)
        twin._space = layout_of(environment).observation
        twin._filter = ActionFilter(environment, self._fallback, **self._options)
        return twin

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation, or the actions for a batch; and the state after it."""
        if self._filter is None:
            raise ValueError("this shield does not know its environment yet: Shield(...).bind(environment)")
        count = batch_size(self._space, observation)
        batch = alone(observation) if count is None else observation
        starts = self._starts(count or 1, state, episode_start)
        asked, remembered = (None, None) if state is None else state
        actions, asked = predicted(self.policy, batch, asked, starts, deterministic, action_masks)
        filtered = self._filter.filter(batch, actions, remembered, starts)
        self.interventions.count(filtered)
        chosen = first_of(filtered.actions) if count is None else filtered.actions
        return chosen, (asked, filtered.memory)

    @staticmethod
    def _starts(count: int, state: Any, episode_start: Any) -> NDArray[np.bool_]:
        if state is None or episode_start is None:
            return np.full(count, state is None)
        return np.broadcast_to(np.asarray(episode_start, np.bool_), (count,))
