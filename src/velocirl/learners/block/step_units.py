"""Units of the row operations of a step: observe, act, and store in the ring."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import narrow
from velocirl.engine.compiler.columns import Local
from velocirl.engine.compiler.units import BoundUnit
from velocirl.learners.block.networks import BlockNetworks, forward_unit
from velocirl.learners.rows.commands import command_for
from velocirl.learners.rows.experience import Experience
from velocirl.learners.rows.functions import Acting, Storing, step_functions
from velocirl.learners.rows.recording import Log, Ring, Sight
from velocirl.learners.task import Task
from velocirl.networks.mlp import ROWS
from velocirl.program.iteration import Rows, walk
from velocirl.program.replay import step


class Course(NamedTuple):
    """State that steps read, and arrays that they write."""

    rows: NDArray[Any]  # (capacity,) the ring,
    counts: NDArray[np.int64]  # (3,) of which PLACE is where the next group goes
    rng: NDArray[np.uint64]  # (copies, 2) the streams of actions
    noise: NDArray[np.float32]  # (copies, action size) what exploration keeps from step to step
    clock: NDArray[np.int64]  # of which STEP counts
    exploration: NDArray[np.float32]  # (1,)
    log: Log
    reported: NDArray[np.float32]  # (fields, agents, steps, copies of each)
    sums: NDArray[np.float64] | None = None  # (copies, 1 + constraints) of episodes, where something is decided by them


def step_units(task: Task, networks: BlockNetworks, experience: Experience, course: Course) -> dict[str, BoundUnit]:
    """Bind the units of a step, by the names of their operations."""
    work = networks.own_work(task.acting, 0)
    inputs = work.values[: ROWS * networks.input_row(task.acting)].reshape(ROWS, -1)[:, : task.encoding.inputs]
    centre = np.zeros(task.encoding.inputs, np.float32)  # nothing is normalised
    final = experience.final, experience.final_mask
    sight = Sight(experience.observation, *final, task.encoding.table, centre, centre)
    stored = narrow(course.rows)
    ring = Ring(
        rows=stored,
        observations=course.rows["observation"],
        next_observations=course.rows["next_observation"],
        counts=course.counts,
        noise=course.noise,
        mask=experience.mask,
        clock=course.clock,
    )
    _, table = command_for(task.source.action_space)
    column = Local(work.output)
    acting = Acting(inputs, work.output, column, experience.mask, course.rng, task.settings, course.clock, table)
    storing = Storing(sight, ring, course.log, course.reported, course.exploration, course.sums)
    used = {one.name for one in walk(step()) if isinstance(one, Rows)}
    bound = step_functions(task, experience, acting, storing)
    units = {name: networks.bind_rows(one) for name, one in bound.items() if name in used}
    plan, functions = networks.network(task.acting).plan, networks.functions(task.acting)
    return {**units, "forward": networks.bind(forward_unit(functions), plan, work, 1, name=task.acting)}
