"""Actions that lead to the end of an episode: without discounting, a policy that loops forever is no plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.models import TabularModel


def ending_actions(model: TabularModel, allowed: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the allowed action that may end the episode in the fewest steps, (states,); -1 where none ever does.

    A policy of these actions ends with probability 1, unless it reaches a state without one. Of equally near actions
    the first is taken.
    """
    usable = allowed.ravel()[model.pairs] & (model.probabilities > 0.0)
    chosen = np.full(model.states, -1, np.intp)
    found = model.pairs[usable & model.terminated]

    onwards = usable & ~model.terminated
    order = np.argsort(model.next_states[onwards], kind="stable")
    leading = model.pairs[onwards][order]  # the pairs that lead to state 0, those that lead to state 1, ...
    bounds = np.concatenate(([0], np.cumsum(np.bincount(model.next_states[onwards], minlength=model.states))))
    while len(found):
        pairs = np.unique(found)
        states, firsts = np.unique(pairs // model.actions, return_index=True)
        chosen[states] = pairs[firsts] % model.actions
        counts = bounds[states + 1] - bounds[states]
        places = np.repeat(bounds[states] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        found = leading[places]
        found = found[chosen[found // model.actions] < 0]
    return chosen
