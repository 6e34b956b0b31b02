"""Units of the row operations of a step: observe, act, and store in the ring."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import narrow
from velocirl.engine.compiler.columns import Local, Ringed, Shared
from velocirl.engine.compiler.units import BoundUnit
from velocirl.engine.targets.indexing import index_loop, row_loop
from velocirl.learners.block.networks import BlockNetworks, forward_unit
from velocirl.learners.counting.reporting import Endings, remembering
from velocirl.learners.rows.acting import check_output, random_action
from velocirl.learners.rows.commands import command_for
from velocirl.learners.rows.experience import Experience
from velocirl.learners.rows.recording import Log, Ring, Sight, look
from velocirl.learners.task import Task
from velocirl.networks.mlp import ROWS


class Course(NamedTuple):
    """What steps go on from, and what they write to."""

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
    known = {
        task.acting: Local(work.output),
        "row": Ringed(stored, course.counts),
        "mask": experience.mask,
        "rng": course.rng,
        "exploration": Shared(course.exploration),
        "noise": course.noise,
        "settings": Shared(task.settings),
    }
    columns = tuple(known[name] for name in task.act.arguments)
    command, table = command_for(task.source.action_space)
    plan = networks.network(task.acting).plan
    bind, functions = networks.bind, networks.functions(task.acting)
    record_step, more = remembering(task.reporting, Endings(experience.final_state, course.reported), sums=course.sums)
    random_columns = known["row"], known["mask"], known["rng"]
    return {
        "look": bind(index_loop(look), sight, inputs, ring, course.log),
        "random_action": bind(row_loop(random_action, task.head), *random_columns),
        "forward": bind(forward_unit(functions), plan, work, 1, name=task.acting),
        "check_output": bind(index_loop(check_output), work.output, course.log, course.clock),
        "act": bind(row_loop(task.act.function, task.head if task.act.takes_head else None), *columns),
        "command": bind(row_loop(command), experience.action, known["row"], Shared(table)),
        "store": bind(index_loop(record_step), sight, experience.told, ring, course.log, *more),
    }
