"""Tables for millions of states: sparse compared with dense, by the number of visited states."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import velocirl
from velocirl import Discrete, Environment, MultiDiscrete, int32, random, record
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import BYTES, UPDATES
from velocirl.tabular.tables.value_table import ValueTable

SIDE = 4000
STORED = 10_000_000
SIDES = (32, 256, 1024, SIDE)  # 1,024 to 16,000,000 states
COPIES, UPDATES_PER_CALL = 4096, 400_000
FEWEST_UPDATES = 4e6
SLOT_BYTES, KEY_BYTES = 8, 8  # used by a sparse table to find a row
SETTINGS: dict[str, Any] = {
    "num_envs": COPIES,
    "gamma": 0.99,
    "learning_rate": 0.1,
    "exploration_rate": 0.1,
    "exploration_schedule": "constant",
    "seed": 0,
}


@record
class State:
    """Position on the grid."""

    row: int32  # pyright: ignore[reportInvalidTypeForm] - the language of records
    column: int32  # pyright: ignore[reportInvalidTypeForm]


@record
class Params:
    """Side length of the accessible part of the grid."""

    side: int32 = SIDE  # pyright: ignore


def reset(state, params, rng):
    state.row = random.integer(rng, 0, params.side)
    state.column = random.integer(rng, 0, params.side)


def step(state, params, action, rng):  # noqa: ARG001
    state.row = min(max(state.row + (action == 2) - (action == 0), 0), params.side - 1)
    state.column = min(max(state.column + (action == 1) - (action == 3), 0), params.side - 1)
    found = state.row + state.column == 0
    return (1.0 if found else 0.0), found


def observe(state, params, observation):  # noqa: ARG001
    observation[0] = state.row
    observation[1] = state.column


@cache
def plain() -> Environment:
    """Create a plain of 4000x4000 cells; environments start anywhere and search for the first cell."""
    return Environment(
        "Plain4000-v0",
        state=State,
        params=Params,
        observation=MultiDiscrete([SIDE, SIDE]),
        action=Discrete(4),
        max_steps=10_000,
        reset=reset,
        step=step,
        observe=observe,
    )


@cache
def scattered_cells(side: int) -> NDArray[np.int64]:
    """Return all cells of a part of the plain, in uniformly random order."""
    return np.random.default_rng(0).permutation(side * side)


def agent_of(storage: str, side: int = SIDE, stored: int | None = None, **settings: Any) -> velocirl.QLearning:
    """Create an agent for a part of the plain.

    `stored` is the number of rows already in a sparse table: uniformly drawn cells, in random order.
    """
    agent = velocirl.QLearning(plain(), **{**SETTINGS, "storage": storage, "params": {"side": side}, **settings})
    if stored is not None:
        cells = scattered_cells(side)[:stored]
        states = cells // side * SIDE + cells % side
        agent.table.load_state({"state": states, "values": np.zeros((stored, agent.actions), np.float32)})
    return agent


def updating(storage: str, side: int = SIDE, stored: int | None = None, **settings: Any) -> Timed:
    """Time updates."""
    agent = agent_of(storage, side, stored, **settings)
    # Reads all values of the next state; reads and writes one value of the previous state.
    values = 4 * (agent.actions + 2)
    found = 2 * (SLOT_BYTES + KEY_BYTES) if storage == "sparse" else 0
    return Timed(lambda: agent.learn(UPDATES_PER_CALL), amount=UPDATES_PER_CALL, cost=Cost(bytes=values + found))


def bytes_per_state(stored: int = STORED) -> tuple[float, float]:
    """Return two sizes of a sparse table with `stored` rows, in bytes per state.

    The first counts the stored rows and all slots, the second everything allocated.
    """
    table = ValueTable(SIDE * SIDE, 4, storage="sparse")
    rows, slots, *_ = table.grow(stored)
    return (stored * rows.itemsize + slots.nbytes) / stored, table.nbytes / stored


@benchmark(category="learning", quick=False)
def sparse_table() -> Comparison:
    """Q-learning with a sparse table that holds 10M of 16M states.

    A plain of 4000x4000 cells, four actions, 4096 copies that begin anywhere, on one core; states that were not met
    before are added on the way. The dense table of the same plain takes 256 MB. Of memory, the numbers that an update
    needs count, although each lies in another line of the cache, which is moved as a whole.
    """
    sparse, dense = "sparse table", "dense table"
    return Comparison(
        unit=UPDATES,
        contestants={sparse: lambda: updating("sparse", stored=STORED), dense: lambda: updating("dense")},
        claims=(value(sparse, at_least=FEWEST_UPDATES), ratio(sparse, dense)),
    )


@benchmark(category="memory")
def sparse_bytes() -> Comparison:
    """Memory of a state in a sparse table of 10M states, four actions.

    A row is the number of its state and four values, 24 bytes; a slot of the hash is 8 bytes, and at most 70% are
    taken. Rows and slots double when they are full, and rows that nobody has written to take no memory yet.
    """
    return Comparison(
        unit=BYTES,
        contestants={
            "in use": lambda: Counted(lambda: bytes_per_state()[0]),
            "allocated": lambda: Counted(lambda: bytes_per_state()[1]),
        },
    )


@benchmark(category="learning", standard=False)
def storage_by_size() -> Comparison:
    """Dense beside sparse, by the number of states that are met.

    Parts of the same plain, from 32x32 to all of it; the sparse table holds all of their states. A dense table is
    faster at every size, so storage="auto" is dense as long as the table takes at most 256 MiB, which is 16M states of
    four actions; above that it is the memory that decides.
    """
    contestants = {}
    for side in SIDES:
        contestants[f"dense, {side * side:,} states"] = lambda side=side: updating("dense", side)
        contestants[f"sparse, {side * side:,} states"] = lambda side=side: updating("sparse", side, side * side)
    claims = [ratio(f"dense, {side * side:,} states", f"sparse, {side * side:,} states") for side in SIDES]
    return Comparison(UPDATES, contestants, claims)
