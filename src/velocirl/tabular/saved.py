"""Array specs of saved tabular agents, by name."""

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

TRAINED = "policy.rng"  # present once episodes are running, along with their state


def table_specs(table: ValueTable) -> Specs:
    """Return the specs of a table's arrays, under their names in the agent's file.

    Visits are optional: files of runs that counted them have them even where the loading agent does not.
    """
    specs = dict(table.specs())
    specs.setdefault("visits", ArraySpec(np.int32, (None, table.actions), 0, optional=True))
    return named("table", specs)


def training_specs(
    native: Environment | None, copies: int, memory: Memory, actions: int, arrays: Mapping[str, NDArray[Any]]
) -> Specs:
    """Return the specs of a learner's saved environments; their row numbers must be within the saved table."""
    own: Specs = {TRAINED: streams(copies)}
    if native is None:  # running episodes of Gymnasium environments cannot be saved
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
