"""Random models of a given shape, for testing planners and learners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.models import TabularModel


def random_model(
    states: int, actions: int, branching: int, seed: int, *, ending: float = 0.0, illegal: float = 0.0
) -> TabularModel:
    """Build a Garnet (Archibald et al., 1995): each action leads to `branching` different states, drawn uniformly.

    Their probabilities are the pieces of a stick broken at uniformly random points. Each outcome has a normally
    distributed reward, and terminates with probability `ending`. All but one action of each state are illegal with
    probability `illegal`. Episodes begin in any state with equal probability.
    """
    if min(states, actions) < 1 or not 1 <= branching <= states:
        raise ValueError(
            f"a random model needs at least one state and action, and a branching from 1 to the number of states, "
            f"got {states} states, {actions} actions and a branching of {branching}"
        )
    for name, chance in (("ending", ending), ("illegal", illegal)):
        if not 0.0 <= chance <= 1.0:
            raise ValueError(f"{name} must be a probability, got {chance!r}")
    rng = np.random.default_rng(seed)
    legal = rng.random((states, actions)) >= illegal
    legal[np.arange(states), rng.integers(0, actions, states)] = True
    pairs = int(legal.sum())
    cuts = np.sort(rng.random((pairs, branching - 1)), axis=1)
    pieces = np.diff(cuts, axis=1, prepend=0.0, append=1.0)
    return TabularModel(
        states,
        actions,
        np.concatenate(([0], np.cumsum(legal.ravel() * branching))),
        pieces.ravel(),
        _different(rng, pairs, branching, states).ravel(),
        rng.standard_normal(pairs * branching),
        rng.random(pairs * branching) < ending,
        np.full(states, 1.0 / states),
    )


def _different(rng: np.random.Generator, rows: int, count: int, states: int) -> NDArray[np.intp]:
    """Sample `count` different states per row, (rows, count), every set equally likely (Floyd's sampling)."""
    drawn = np.empty((rows, count), np.intp)
    for column, last in enumerate(range(states - count, states)):
        draw = rng.integers(0, last + 1, rows)
        taken = (drawn[:, :column] == draw[:, None]).any(axis=1)
        drawn[:, column] = np.where(taken, last, draw)
    return drawn
