"""Shield around a policy: its actions pass if they are safe."""

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
    """Counts of a shield's interventions, in actions of single environments."""

    actions: int = 0
    replaced: int = 0  # by the nearest safe one, or by the fallback's
    emergencies: int = 0  # no safe action was found

    def count(self, filtered: Filtered) -> None:
        """Add the counts of one decision."""
        self.actions += len(filtered.replaced)
        self.replaced += int(np.count_nonzero(filtered.replaced))
        self.emergencies += int(np.count_nonzero(filtered.emergency))


class Shield:
    """Policy whose unsafe actions are replaced by the nearest safe ones, with the same `predict`.

    The policy is an agent, a controller, or a function of an observation. The consequences of an action are predicted
    with models of the plant, over `horizon` steps: the action, and then the actions of the `fallback` (with
    `then="hold"`: the same action). The fallback is a controller, by default the environment's own; it acts if no
    candidate is safe. `constraints` names the constraints to satisfy; by default the critical ones, or all if none is.

    The plant's state is read from the environments that the shield is bound to (`evaluate` does that). Otherwise it
    comes from `estimate`, a function that returns fields of the state for a batch of observations. `mismatch` has
    factors for parameters of the model by name, to test the shield with a wrong model.
    """

    def __init__(self, policy: Any, fallback: Any = None, **options: Any) -> None:
        """Wrap a policy; `options` as for `ActionFilter`."""
        if not hasattr(policy, "predict"):
            if not callable(policy):
                raise TypeError(f"a {type(policy).__name__} cannot act: give a policy with predict, or a function")
            policy = Rule(policy)
        self.policy, self._fallback, self._options = policy, fallback, options
        self.interventions = Interventions()
        self._filter: ActionFilter | None = None
        self._space: Any = None  # observation space

    @property
    def source(self) -> Any:
        """Training environment of the policy, in which it is evaluated by default."""
        return getattr(self.policy, "source", None)

    def bind(self, environment: Any) -> Self:
        """Return this shield bound to an environment, or to environments whose state it may read; counts are shared."""
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
        """Return the action for an observation, or the actions for a batch; and the next state."""
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
