"""Array specifications of saved agents with networks, by name: the only place where they are declared.

Learners of different devices save the same names, so that a run can continue on another device. Arrays that depend on
the device (such as the number of a learner's random streams) may have any length here. They are created again where
they do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import LOST, TRUNCATED, Frames, rollout_type, transition_type
from velocirl.engine.disk.saved import ArraySpec, Specs, moments, named, records, streams
from velocirl.engine.fleets.fleet_state import fleet_specs
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.pace import GROUP, group_in
from velocirl.program.task import Task

TRAINED = "learner.rng"  # exists once an agent has trained, with all of the learner's arrays
DRAWS = "learner.draws"  # random streams of a learner of whole batches, one per row
# Prefixes of arrays with a row for each environment; a network may be called policy, too.
SUMS = "policy.episodes"  # episodes since the last decision: their count, and the sums of their costs
BY_COPY = ("fleet.", "policy.rng", "policy.noise", "policy.discounted", "policy.state", SUMS)
BY_RING = ("memory.rows", "memory.priorities")  # one record for each environment in turn
COUNTS = "memory.counts"  # of the records of all environments


DRAWING = ArraySpec(np.uint64, (2,))  # the random stream that samples batches


def training_specs(task: Task, arrays: Mapping[str, Any]) -> Specs:
    """Return the specs of all arrays that a learner saves, besides the agent's own.

    uint8 observations may be stored as frames or as network inputs, depending on `arrays`: a learner loads both.
    """
    if task.recorded is not None:
        return {**_learning(), **_networks(task), "learner.updates": _counts(1), "memory.rng": DRAWING}
    native = task.source.native
    fleet = {} if native is None else fleet_specs(native, task.config.num_envs)
    kind = _rollout(task, arrays) if task.value is not None else _memory(task, arrays)
    return {**_learning(), **_acting(task), **_networks(task), **named("fleet", fleet), **kind}


def learned_specs(specs: Specs) -> Specs:
    """Return the specs of networks, optimizers and update counts."""
    apart = (*BY_COPY, "memory.", "waiting.", TRAINED, DRAWS, GROUP)
    return {name: one for name, one in specs.items() if not name.startswith(apart)}


def as_own(array: NDArray[Any]) -> ArraySpec:
    """Return the spec of an array with the dtype and shape of the agent's own."""
    return ArraySpec(array.dtype, array.shape)


def normaliser(array: NDArray[Any]) -> ArraySpec:
    """Return the spec of running moments of the agent's size."""
    return moments(array.shape[1])


def _learning() -> Specs:
    """Return the specs of every learner."""
    return {
        TRAINED: streams(None),
        DRAWS: streams(None, optional=True),
        "learner.loss_scale": ArraySpec(np.float64, (None,), 0, optional=True),
        "learner.good_steps": replace(_counts(None), optional=True),
    }


def _acting(task: Task) -> Specs:
    """Return the specs of a learner whose environments act."""
    state_size = getattr(task.built[task.acting], "state_size", 0)
    return {
        "policy.rng": streams(task.config.num_envs),
        **({"policy.state": _numbers(task.config.num_envs, state_size)} if state_size else {}),
    }


def _networks(task: Task) -> Specs:
    """Return the specs of parameters, moments and step counts; a target is as large as the network it follows."""
    slots, specs = optimiser_from(task.config.optimiser).slots, {}
    sizes = {name: len(parameters) for name, parameters in task.parameters.items()}
    sizes |= {target: sizes[source] for target, source in task.targets.items()}
    for name, size in sizes.items():
        if name != task.acting:
            specs[f"{name}.parameters"] = _numbers(size)
        if name in task.trained:
            specs[f"{name}.moments"] = _numbers(slots, size)
            specs[f"{name}.steps"] = _counts(1)
            held = getattr(task.built[name], "held", None)  # buffers of a torch module
            buffers = {} if held is None else held.buffers()
            owners = [name, *(one for one, source in task.targets.items() if source == name and _changing(held))]
            specs |= {f"{owner}.buffer.{one}": as_own(array) for owner in owners for one, array in buffers.items()}
    if task.numbers:
        count = len(task.numbers)
        specs["numbers.values"], specs["numbers.moments"] = _numbers(count), _numbers(slots, count)
        specs["numbers.steps"] = _counts(count)
    return specs


def _changing(held: Any) -> bool:
    """Return whether training changes a module's buffers: its targets then hold an earlier version of them."""
    return held is not None and held.takes_statistics


def _rollout(task: Task, arrays: Mapping[str, Any]) -> Specs:
    """Return the specs of on-policy learning, with an optional rollout that waits for its update.

    A waiting rollout of another length is ignored.
    """
    copies, inputs = task.config.num_envs, task.encoding.inputs
    frames = task.source.stored if "waiting.frames" in arrays else None
    kind = rollout_type(inputs, task.action, task.fields, task.values, frames)
    fields, size = records(kind, (None,), _bounds(task, frames)).fields, kind.itemsize
    log = {
        "ends": ArraySpec(np.int32, (1, None, copies), -1),
        "returns": _numbers(1, None, copies),
        "lengths": ArraySpec(np.int32, (1, None, copies), 0),
        "reward_sums": ArraySpec(np.float64, (copies, 2)),
        "observation_sums": ArraySpec(np.float64, (None, 2, inputs)),
    }
    if task.report_rows:
        log["reported"] = ArraySpec(np.float32, (task.report_rows, 1, None, copies), finite=False)
    waiting = {
        **log,
        "records": ArraySpec(np.uint8, (None, copies * size), fields=fields, packed=kind),
        "fault": ArraySpec(np.int32, (copies,), 0),
        "start_state": _numbers(copies, None),
    }
    if frames is not None:
        waiting["frames"] = ArraySpec(np.uint8, (None, frames.size))
    return {
        "learner.minibatches": _counts(2),
        "policy.discounted": _numbers(copies),
        **{name: replace(one, optional=True) for name, one in named("waiting", waiting).items()},
    }


def _memory(task: Task, arrays: Mapping[str, Any]) -> Specs:
    """Return the specs of off-policy learning; the buffer itself checks that its arrays are consistent."""
    config, copies = task.config, task.config.num_envs
    capacity = max(config.buffer_size // copies, 1) * copies
    frames = task.source.stored if "memory.edges" in arrays else None
    kind = transition_type(task.encoding.inputs, task.action, task.stored, frames)
    last = capacity - 1
    prioritised = {
        "memory.priorities": ArraySpec(np.float32, (capacity,), 0),
        "memory.greatest": ArraySpec(np.float32, (1,), 0),
        "memory.places": ArraySpec(np.int64, (capacity,), 0, last),
        "memory.revised": ArraySpec(np.int64, (1,), 0, capacity),
    }
    return {
        "learner.updates": _counts(1),
        GROUP: ArraySpec(np.int64, (1,), 1, copies, optional=True),
        "policy.noise": _numbers(copies, task.head.action_size),
        **({SUMS: ArraySpec(np.float64, (copies, 1 + len(task.constraints)))} if task.decisions else {}),
        "memory.rows": records(kind, (None,), _bounds(task, frames)),
        COUNTS: ArraySpec(np.int64, (3,), 0, np.array([last, capacity, 2**62])),
        "memory.rng": DRAWING,
        **named("memory", {} if frames is None else _frames(frames, group_in(config, arrays))),
        **{name: replace(one, optional=True) for name, one in prioritised.items()},
    }


def _frames(frames: Frames, copies: int) -> Specs:
    """Return the specs of a frame replay buffer: frames outside of records, and truncations per environment."""
    return {
        "edges": ArraySpec(np.uint8, (frames.stack * copies, frames.size)),
        "finals": ArraySpec(np.uint8, (None, frames.size)),
        "cuts": ArraySpec(np.int64, (copies,), 0, 2**62),
    }


def _bounds(task: Task, frames: Frames | None) -> dict[str, tuple[Any, Any]]:
    """Return the bounds of a step's fields that become an index or a status code."""
    bounds: dict[str, tuple[Any, Any]] = {"ended": (0, TRUNCATED), "mask": (0, 1), "next_mask": (0, 1)}
    if frames is not None:
        bounds |= {"ended": (0, LOST), "age": (0, frames.stack - 1), "final": (-1, 2**31 - 1)}
    head = task.head
    choices = head.action_size - head.numbers
    if choices:
        lowest, highest = [0] * choices, [count - 1 for count in head.counts[:choices]]
        low, high = lowest + [-np.inf] * head.numbers, highest + [np.inf] * head.numbers
        bounds["action"] = np.array(low, head.action_dtype), np.array(high, head.action_dtype)
    return bounds


def _numbers(*shape: int | None) -> ArraySpec:
    return ArraySpec(np.float32, shape)


def _counts(size: int | None) -> ArraySpec:
    return ArraySpec(np.int64, (size,), 0, 2**62)
