"""Finite Markov decision process as flat arrays: the possible outcomes of each state and action.

Truncation is not modeled, as a time limit is no property of a state. Plans are made for episodes that continue until
they terminate. If the time left matters, make it part of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from velocirl.engine.environment import Environment
from velocirl.monitor.words import plural
from velocirl.tabular.planning.faults import ModelError, check_outcomes, check_start
from velocirl.tabular.planning.reading import Actions, Columns, read_arrays, read_lists
from velocirl.vector.making import GYMNASIUM, make


@dataclass(frozen=True, eq=False)
class TabularModel:
    """Outcomes of all actions in all states, sorted by the pair `state * actions + action`.

    An action without outcomes is illegal in that state. A `terminated` outcome ends the episode: the value of its next
    state does not count. Every state has a legal action; a final state has one that terminates.
    """

    states: int
    actions: int
    offsets: NDArray[np.intp]  # (states * actions + 1,): first outcome of each pair
    probabilities: NDArray[np.float64]  # (outcomes,)
    next_states: NDArray[np.intp]  # (outcomes,)
    rewards: NDArray[np.float64]  # (outcomes,)
    terminated: NDArray[np.bool_]  # (outcomes,)
    start: NDArray[np.float64] | None = None  # (states,): probability that an episode begins in each state

    def __post_init__(self) -> None:
        self._keep(offsets=np.intp, probabilities=np.float64, rewards=np.float64, terminated=np.bool_)
        outcomes, next_states = len(self.probabilities), np.asarray(self.next_states)
        rises = self.offsets.shape == (self.states * self.actions + 1,) and bool((np.diff(self.offsets) >= 0).all())
        if not rises or self.offsets[0] != 0 or self.offsets[-1] != outcomes:
            raise ValueError(
                f"offsets must be states * actions + 1 numbers that rise from 0 to {outcomes}, the outcomes"
            )
        if any(
            array.shape != (outcomes,) for array in (self.probabilities, next_states, self.rewards, self.terminated)
        ):
            raise ValueError("probabilities, next_states, rewards and terminated must be equally long")
        check_outcomes(self.states, self.actions, self.pairs, self.probabilities, next_states, self.rewards)
        self._keep(next_states=np.intp)
        if self.start is not None:
            self._keep(start=np.float64)
            check_start(self.start, self.states)

    def __repr__(self) -> str:
        size = f"{plural(self.states, 'state')} x {plural(self.actions, 'action')}"
        return f"<TabularModel: {size}, {plural(len(self.rewards), 'outcome')}>"

    def _keep(self, **types: type) -> None:
        """Store read-only copies, so that the validated arrays cannot change."""
        for name, kind in types.items():
            array = np.array(getattr(self, name), kind)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @cached_property
    def pairs(self) -> NDArray[np.intp]:
        """Pair of each outcome, `state * actions + action`, (outcomes,)."""
        return np.repeat(np.arange(self.states * self.actions), np.diff(self.offsets))

    @cached_property
    def legal(self) -> NDArray[np.bool_]:
        """Mask of the legal actions in each state, (states, actions)."""
        return (np.diff(self.offsets) > 0).reshape(self.states, self.actions)

    def start_value(self, values: ArrayLike) -> float:
        """Return the average return of an episode, given the values of the states (states,)."""
        if self.start is None:
            raise ValueError("the model does not say where episodes begin: give it start, a probability for each state")
        return float(self.start @ np.asarray(values, np.float64))

    @classmethod
    def from_arrays(
        cls,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        terminal: ArrayLike | None = None,
        *,
        legal: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> TabularModel:
        """Build a model of probabilities (states, actions, states) and rewards of that shape or (states, actions).

        An episode ends on entering a `terminal` state (states,); the arrays' entries for its own actions are ignored.
        Entries for actions that are not `legal` (states, actions) are ignored too.
        """
        return cls._of(*read_arrays(probabilities, rewards, terminal, legal), start)

    @classmethod
    def from_outcomes(
        cls,
        outcomes: Mapping[int, Actions] | Sequence[Actions],
        *,
        actions: int | None = None,
        legal: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> TabularModel:
        """Build a model of lists `outcomes[state][action] = [(probability, next_state, reward, terminated), ...]`.

        An action that is missing, or has no outcomes, is illegal in that state.
        """
        return cls._of(*read_lists(outcomes, actions, legal), start)

    @classmethod
    def from_gymnasium(cls, environment: str | gymnasium.Env[Any, Any], **options: Any) -> TabularModel:
        """Build the model of a Gymnasium environment from its table `P`: FrozenLake, CliffWalking, Taxi.

        An environment given by name is created with `options`, such as `is_slippery=False`. Its time limit is left out.
        """
        env = make(f"{GYMNASIUM}{environment}", **options) if isinstance(environment, str) else environment
        inner: Any = env.unwrapped
        if not hasattr(inner, "P"):
            name = inner.spec.id if inner.spec is not None else type(inner).__name__
            raise ValueError(
                f"{name} has no table of outcomes P, as FrozenLake-v1, CliffWalking-v1 and Taxi have; explore_model "
                "builds a model from a function that gives the outcomes of a state"
            )
        return cls.from_outcomes(inner.P, start=getattr(inner, "initial_state_distrib", None))

    @classmethod
    def from_environment(
        cls, environment: str | Environment, params: Mapping[str, Any] | None = None, *, max_states: int = 100_000
    ) -> TabularModel:
        """Find the model of a compiled environment, an object or an id, by running its functions in plain Python.

        Observations and actions must be Discrete, and an observation must identify the state. Random draws must have
        finitely many outcomes, as with `random.integer`; their probabilities are exact to 2^-32. The time limit is left
        out.
        """
        from velocirl.tabular.planning.drawn_outcomes import model_of  # imported here, as that module imports this one

        return model_of(environment, None if params is None else dict(params), max_states)

    @classmethod
    def _of(
        cls, states: int, actions: int, legal: NDArray[np.bool_], columns: Columns, start: ArrayLike | None
    ) -> TabularModel:
        pairs, probabilities, next_states, rewards, terminated = columns
        counts = np.bincount(pairs, minlength=states * actions)
        missing = legal.ravel() & (counts == 0)
        if missing.any():
            raise ModelError(*divmod(int(np.argmax(missing)), actions), "it is legal, but nothing follows from it")
        offsets = np.concatenate(([0], np.cumsum(counts)))
        begins = None if start is None else np.asarray(start, np.float64)
        return cls(states, actions, offsets, probabilities, next_states, rewards, terminated, begins)
