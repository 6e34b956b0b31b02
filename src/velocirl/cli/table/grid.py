"""Grid worlds: detection of environments whose states are the cells of a map.

A compiled environment, built in or user-defined, qualifies by two properties. Its state has a row and a column, and its
text is a map that shows the walker. A Gymnasium environment qualifies if it has a map (`desc`) or a shape, and its
model `P`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.engine.framing import repeated_step, whole_frame
from velocirl.engine.records import with_attributes
from velocirl.training.source import Source
from velocirl.vector.making import make

MOST_CELLS = 10_000  # of a map that is still readable
TRIES = 4096  # steps in total, to find out where actions lead
SPREAD = 7919  # a prime, to spread the steps over a large map
CLIFF, GOAL, HOLE, WALL, FREE = "C", "G", "H", "#", "."
PLAIN = {FREE, "F", "S", " "}  # tiles drawn as floor


class Grid(NamedTuple):
    """Map of a grid world."""

    states: NDArray[np.int64]  # (rows, columns): the index of each cell's state
    tiles: NDArray[np.str_]  # (rows, columns): the character of each cell
    moves: NDArray[np.float64]  # (actions, 2): mean change of row and column by each action


def find_grid(source: Source) -> Grid | None:
    """Return the map of an environment; None if it is not a grid world."""
    if not isinstance(source.observation_space, Discrete) or source.observation_space.start != 0:
        return None
    return _native_grid(source.native, source.params_for(1)) if source.native is not None else _host_grid(source)


def _native_grid(environment: Environment, params: dict[str, Any]) -> Grid | None:
    text, fields = environment.text, environment.state.fields
    if text is None or not {"row", "column"} <= set(fields):
        return None
    state = with_attributes(environment.state.rows(1))[0]
    settings = with_attributes(environment.params.rows(1, params))[0]
    first = text(state, settings).splitlines()
    shape = len(first), len(first[0]) if first else 0
    if 0 in shape or shape[0] * shape[1] > min(MOST_CELLS, environment.observation.n):  # pyright: ignore
        return None
    states, tiles = np.empty(shape, np.int64), np.array([list(line.ljust(shape[1])[: shape[1]]) for line in first])
    seen, observe = np.zeros(1, np.int64), whole_frame(environment)
    for cell in np.ndindex(shape):
        state.row, state.column = cell
        observe(state, settings, seen)
        states[cell] = seen[0]
    tiles[0, 0] = text(state, settings)[0]  # on the first map, the walker hides that cell
    if len(np.unique(states)) != states.size or states.min() < 0 or states.max() >= environment.observation.n:  # pyright: ignore
        return None
    return Grid(states, tiles, _native_moves(environment, state, settings, shape))


def _native_moves(environment: Environment, state: Any, params: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return each action's mean move, from cells all over the map; a jump, as back to the start, does not count."""
    actions = int(environment.action.n)  # pyright: ignore - tabular
    cells = list(np.ndindex(shape))
    rng, step = random.streams(0, 1)[0], repeated_step(environment)
    moves, counts = np.zeros((actions, 2)), np.zeros(actions)
    for number in range(max(TRIES, actions)):
        action, cell = number % actions, cells[number // actions * SPREAD % len(cells)]
        state.row, state.column = cell
        step(state, params, action, rng)
        _count(moves, counts, action, 1.0, int(state.row) - cell[0], int(state.column) - cell[1])
    return moves / np.maximum(counts, 1)[:, None]


def _host_grid(source: Source) -> Grid | None:
    environment = make(source.id, **source.params)
    inside: Any = environment.unwrapped
    environment.close()
    model: Any = getattr(inside, "P", None)
    desc: Any = getattr(inside, "desc", None)
    count = int(source.observation_space.n)  # pyright: ignore
    shape = np.shape(desc) if np.ndim(desc) == 2 else tuple(getattr(inside, "shape", ()) or ())
    if not isinstance(model, dict) or len(shape) != 2 or shape[0] * shape[1] != count or count > MOST_CELLS:
        return None
    states = np.arange(count).reshape(shape)
    tiles = _tiles_of(model, states) if np.ndim(desc) != 2 else np.asarray(desc).astype(np.str_)
    cliff: Any = getattr(inside, "_cliff", None)
    if np.shape(cliff) == shape:
        tiles[np.asarray(cliff, np.bool_)] = CLIFF
    actions = int(source.action_space.n)  # pyright: ignore
    moves, counts = np.zeros((actions, 2)), np.zeros(actions)
    for (row, column), state in np.ndenumerate(states):
        for action, outcomes in model[state].items():
            for chance, after, *_ in outcomes:
                below, right = np.divmod(after, shape[1]) - np.array([row, column])
                _count(moves, counts, action, chance, int(below), int(right))
    return Grid(states, tiles, moves / np.maximum(counts, 1e-9)[:, None])


def _tiles_of(model: dict[int, Any], states: NDArray[np.int64]) -> NDArray[np.str_]:
    """Derive the tiles of a map from a model: ends of episodes, and unreachable cells."""
    tiles = np.full(states.shape, WALL)
    outcomes = [outcome for moves in model.values() for some in moves.values() for outcome in some]
    best = max((reward for _, _, reward, ends in outcomes if ends), default=0.0)
    for _, after, reward, ends in outcomes:
        tiles.flat[after] = (GOAL if reward == best else HOLE) if ends else FREE
    return tiles


def _count(moves: Any, counts: Any, action: int, weight: float, below: int, right: int) -> None:
    if abs(below) <= 1 and abs(right) <= 1:
        moves[action] += weight * below, weight * right
        counts[action] += weight
