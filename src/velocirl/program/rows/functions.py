"""Row functions of rollouts and of steps into a replay buffer, with their arguments, by the names of operations.

Backends bind them to units of compiled code, or to launches over whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from velocirl.engine.compiler.columns import Ringed, Shared, Timed
from velocirl.engine.targets.launching import Work, by_row
from velocirl.program.counting.reporting import Endings, remembering, settling
from velocirl.program.rows.acting import check_output, keep_mask, random_action
from velocirl.program.rows.commands import command_for
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.frames import Steps, remember_frame
from velocirl.program.rows.recording import (
    Cuts,
    Log,
    Ring,
    Rollout,
    Sight,
    add_moments,
    begin_rollout,
    cut,
    forget,
    look,
    look_ahead,
    note,
    note_mask,
    remember,
    see,
)  # fmt: skip
from velocirl.program.task import Task
from velocirl.program.update import Call


class RowFunction(NamedTuple):
    """Function called for each row, with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # arrays; columns for a function `by_row` (see `engine.compiler.columns`)
    by_row: bool  # a scalar function of rows; else a function of an index (see `engine.targets.indexing`)
    head: Any = None  # first argument of a function of rows that takes it


RowFunctions = dict[str, RowFunction]


def of_index(function: Callable[..., Any], *arguments: Any) -> RowFunction:
    """Return a function of an index with its arguments."""
    return RowFunction(function, arguments, by_row=False)


def of_row(function: Callable[..., Any], *columns: Any, head: Any = None) -> RowFunction:
    """Return a scalar function of rows with a column for each argument."""
    return RowFunction(function, columns, by_row=True, head=head)


def as_work(one: RowFunction) -> Work:
    """Return a row function as work of a launch over all rows."""
    return Work(by_row(one.function, one.head) if one.by_row else one.function, one.arguments)


class Acting(NamedTuple):
    """Input and output rows of the policy's network, and the other arrays that acting reads."""

    inputs: Any  # (rows, inputs) of the current block, or of all environments
    outputs: Any  # (rows, outputs)
    column: Any  # `outputs`, as functions read them
    mask: Any  # (environments, choices) current action mask
    rng: Any  # (environments, 2)
    settings: Any  # (1,)
    clock: Any  # int64 counts; only entry STEP is read
    table: Any  # (1, ...) of `command_for`


class Recording(NamedTuple):
    """Rollout being recorded."""

    sight: Sight
    rollout: Rollout
    cuts: Cuts
    log: Log
    reported: Any  # (report rows, agents, steps, environments of each)


class Storing(NamedTuple):
    """Replay buffer that steps are stored in."""

    sight: Sight
    ring: Ring | Steps
    log: Log
    reported: Any  # (report rows, agents, steps, environments of each)
    exploration: Any  # (1,)
    sums: Any = None  # (environments, 1 + constraints) of episodes, for algorithms with decisions


def rollout_functions(task: Task, experience: Experience, acting: Acting, into: Recording) -> RowFunctions:
    """Return the row functions of a rollout."""
    sight, rollout, cuts, log, reported = into
    known = {
        task.acting: acting.column,
        "row": Timed(rollout.rows),
        "mask": acting.mask,
        "rng": acting.rng,
        "settings": Shared(acting.settings),
    }
    record_step, more = settling(task.reporting, Endings(experience.final_state, reported))
    return {
        "begin_rollout": of_index(begin_rollout, rollout, cuts, log),
        "see": of_index(see, sight, acting.inputs, rollout, log),
        "add_moments": of_index(add_moments, sight, rollout),
        "keep_mask": of_row(keep_mask, known["row"], known["mask"]),
        **_acting_functions(task, experience, acting, log, known),
        "settle": of_index(record_step, experience.told, rollout, log, *more),
        "cut": of_index(cut, sight, rollout, cuts, log),
        "forget": of_index(forget, rollout),
        "value": value_function(task, known),
    }


def value_function(task: Task, known: Mapping[str, Any]) -> RowFunction:
    """Return the function that writes an observation's value into its row."""
    assert task.value is not None  # noqa: S101 - rollouts have one
    return _called(task, task.value, known)


def step_functions(task: Task, experience: Experience, acting: Acting, into: Storing) -> RowFunctions:
    """Return the row functions of a step into a replay buffer, of whole observations or of frames."""
    sight, ring, log, reported, exploration, sums = into
    known = {
        task.acting: acting.column,
        "row": Ringed(ring.rows, ring.counts),
        "mask": acting.mask,
        "rng": acting.rng,
        "exploration": Shared(exploration),
        "noise": ring.noise,
        "settings": Shared(acting.settings),
    }
    framed = isinstance(ring, Steps)
    store = remember_frame if framed else remember
    record_step, more = remembering(task.reporting, Endings(experience.final_state, reported), store, sums)
    looks: RowFunctions = {
        "look": of_index(look, sight, acting.inputs, ring, log),
        "look_ahead": of_index(look_ahead, sight, acting.inputs, ring, log),
        "note": of_index(note, acting.inputs, ring),
    }
    if framed:  # the ring stores the frames and writes the network's inputs
        looks = dict.fromkeys(("look", "note"), of_index(note_mask, ring))
    return {
        **looks,
        "random_action": of_row(random_action, known["row"], known["mask"], known["rng"], head=task.head),
        **_acting_functions(task, experience, acting, log, known),
        "store": of_index(record_step, sight, experience.told, ring, log, *more),
    }


def _acting_functions(
    task: Task, experience: Experience, acting: Acting, log: Log, known: Mapping[str, Any]
) -> RowFunctions:
    command, _ = command_for(task.source.action_space)
    return {
        "check_output": of_index(check_output, acting.outputs, log, acting.clock),
        "act": _called(task, task.act, known),
        "command": of_row(command, experience.action, known["row"], Shared(acting.table)),
    }


def _called(task: Task, call: Call, known: Mapping[str, Any]) -> RowFunction:
    columns = (known[name] for name in call.arguments)
    return of_row(call.function, *columns, head=task.head if call.takes_head else None)
