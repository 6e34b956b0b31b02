"""Bellman backup as one sweep over all outcomes, and its error bounds."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.faults import TOLERANCE
from velocirl.tabular.planning.models import TabularModel


class Backup:
    """Bellman backup: action values given the `values` of the next states.

    Q(s, a) = sum over outcomes of p (r + gamma V(s')), where V(s') counts as 0 if the outcome terminates
    """

    def __init__(self, model: TabularModel, gamma: float) -> None:
        if isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be a number from 0 to 1, got {gamma!r}")
        # Action by action: the maximum over actions is then found for many states at a time.
        self._shape = (model.actions, model.states)
        states, actions = np.divmod(model.pairs, model.actions)
        places = actions * model.states + states
        self._paid = self._sum(places, model.probabilities * model.rewards)
        self._paid[~model.legal.T.ravel()] = -np.inf
        goes_on = ~model.terminated
        self._places = places[goes_on]
        self._next_states = model.next_states[goes_on]
        self._weights = float(gamma) * model.probabilities[goes_on]
        self._terms = np.empty(len(self._weights))

        # Contraction factor: a sweep shrinks the distance of any two value functions to at most this fraction.
        self.rate = float(self._sum(self._places, self._weights).max())
        self.contracts = self.rate < 1.0 - TOLERANCE  # the precision to which probabilities are known to sum to 1
        self._most_paid = float(self._sum(places, model.probabilities * np.abs(model.rewards)).max())
        self._operations = int(np.diff(model.offsets).max()) + 3

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of every action, (states, actions); -inf for illegal ones."""
        np.take(values, self._next_states, out=self._terms, mode="clip")  # this mode needs no buffer
        np.multiply(self._terms, self._weights, out=self._terms)
        action_values = self._sum(self._places, self._terms)
        action_values += self._paid
        return action_values.reshape(self._shape).T

    def _sum(self, places: NDArray[np.intp], terms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the terms of each action of each state, one row after the other."""
        # For no terms at all NumPy returns integers.
        return np.bincount(places, terms, math.prod(self._shape)).astype(np.float64, copy=False)

    @property
    def horizon(self) -> float:
        """1 + rate + rate^2 + ... for a contraction; otherwise see `undiscounted_horizon`."""
        return 1.0 / (1.0 - self.rate)

    def rounding(self, values: NDArray[np.float64]) -> float:
        """Return the largest floating-point error of a sweep over values of this size."""
        return self._operations * float(np.finfo(np.float64).eps) * (self._most_paid + float(np.abs(values).max()))

    def doubt(self, change: float, values: NDArray[np.float64]) -> float:
        """Return the error left by a sweep that changed values by at most `change`; times the horizon, an error bound.

        With V' = TV and ||TV - TW|| <= rate ||V - W||: ||V' - V*|| <= rate ||V' - V|| (1 + rate + rate^2 + ...)
        """
        return self.rate * change + self.rounding(values)
