"""Units of the row operations of a step into a replay buffer: observe, act, and store."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.networks import ThreadedNetworks, forward_unit
from velocirl.buffers.records import narrow
from velocirl.collect.sources import Source
from velocirl.collect.step_arrays import StepArrays
from velocirl.engine.compiler.columns import Local
from velocirl.engine.compiler.units import BoundUnit
from velocirl.networks.mlp import ROWS
from velocirl.program.iteration import Rows, walk
from velocirl.program.replay import step
from velocirl.program.rows.commands import command_for
from velocirl.program.rows.functions import Acting, Storing, step_functions
from velocirl.program.rows.recording import Ring, Sight
from velocirl.program.task import Task


def step_units(
    task: Task, networks: ThreadedNetworks, source: Source, arrays: StepArrays, rows: NDArray[Any],
    counts: NDArray[np.int64], clock: NDArray[np.int64], exploration: NDArray[np.float32],
) -> dict[str, Any]:  # fmt: skip
    """Bind the units of a step into `rows`, by operation name; `counts` hold the index of the next group."""
    work, inputs, experience = networks.own_work(task.acting, 0), task.encoding.inputs, source.experience
    into = work.values[: ROWS * networks.input_row(task.acting)].reshape(ROWS, -1)[:, :inputs]
    centre = np.zeros(inputs, np.float32)  # zeros: replay observations are not normalized
    final = experience.final, experience.final_mask
    sight = Sight(experience.observation, *final, task.encoding.table, centre, centre)
    stored = narrow(rows), rows["observation"], rows["next_observation"]
    ring = Ring(*stored, counts, arrays.noise, experience.mask, clock)
    _, table = command_for(task.source.action_space)
    column = Local(work.output)
    acting = Acting(into, work.output, column, experience.mask, arrays.rng, task.settings, clock, table)
    storing = Storing(sight, ring, arrays.log, arrays.reported, exploration, arrays.sums)
    used = {one.name for one in walk(step()) if isinstance(one, Rows)}
    bound = step_functions(task, experience, acting, storing)
    units: dict[str, BoundUnit] = {name: networks.bind_rows(one) for name, one in bound.items() if name in used}
    plan, functions = networks.network(task.acting).plan, networks.functions(task.acting)
    units["forward"] = networks.bind(forward_unit(functions), plan, work, 1, name=task.acting)
    if source.fleet is not None:
        units["advance"] = source.fleet.target.advance_unit
    return units
