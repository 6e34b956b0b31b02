"""What the arrays of a saved agent with a table must be, by name: the one place where they are declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.saved import ArraySpec, Specs, named, records, streams
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.fleet_state import fleet_specs
from velocirl.tabular.memory import Memory
from velocirl.tabular.tables.value_table import ValueTable

TRAINED = "policy.rng"  # is there once copies are in the middle of episodes, and what they are in the middle of with it


def table_specs(table: ValueTable) -> Specs:
    """The arrays of a table, by the names that they have among those of an agent.

    Visits that were counted where several ranks learnt may be there, though one that goes on alone does without.
    """
    specs = dict(table.specs())
    specs.setdefault("visits", ArraySpec(np.int32, (None, table.actions), 0, optional=True))
    return named("table", specs)


def training_specs(
    native: Environment | None, copies: int, memory: Memory, actions: int, arrays: Mapping[str, NDArray[Any]]
) -> Specs:
    """What learners save of their copies; their places are among the rows that the saved table has."""
    own: Specs = {TRAINED: streams(copies)}
    if native is None:  # what Gymnasium's environments are in the middle of cannot be saved
        return own
    last = len(arrays.get("table.values", ())) - 1
    bounds = {"place": (0, last), "action": (memory.least_action, actions - 1), **memory.bounds}
    return {
        **own,
        **named("fleet", fleet_specs(native, copies)),
        "fleet.action": ArraySpec(np.int32, (copies,), 0, actions - 1),
        "current.place": ArraySpec(np.uint64, (copies,), 0, last),
        "current.window": records(memory.window, (copies,), bounds),
    }
