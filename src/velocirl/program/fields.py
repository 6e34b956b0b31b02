"""The fields that an algorithm adds to a row: with each step that is stored, or while it goes through an update.

They are declared as an environment declares its state, as a class of annotations:

    class Scratch:
        next_action: Action            # an action: as many numbers as one has
        candidates: Action["samples"]  # several, as many as a setting says
        next_log_probability: float32
        costs: Costs                   # a number for each constraint; under this name, what the step cost by each
        cost_values: Limits            # a number for each limit, as many as the setting `limited` lists
        next_action: NextAction        # of recorded data, what was done after the step; see below
        old_outputs: Outputs           # as many numbers as the policy has columns

A class of fields may be derived from another, whose fields it has too.

A field `costs` is written where a step is recorded. Where none is declared, costs are not recorded at all.

A field `next_action: NextAction` brings a second one, `has_next`: 1, or 0 where an episode ended and the data does not
know what would have been done next.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.buffers.records import Field
from velocirl.engine.errors import DefinitionError
from velocirl.engine.naming import nearest
from velocirl.engine.records import FieldType
from velocirl.networks.heads import Head


class ActionType:
    """The type of a field that is an action, or with an index several of them."""

    def __init__(self, rows: int | str | None = None) -> None:
        self.rows = rows

    def __getitem__(self, rows: int | str) -> ActionType:
        """So many actions: a number, or the name of a setting."""
        return ActionType(rows)


class CostsType:
    """The type of a field with a number for each constraint."""


class LimitsType:
    """The type of a field with a number for each limit."""


class NextActionType:
    """The type of a field that has the action after that of the row, as recorded."""


class OutputsType:
    """The type of a field that keeps what a network gave for the policy."""


if TYPE_CHECKING:
    from numpy import floating as Action  # noqa: N812
    from numpy import floating as Costs  # noqa: N812
    from numpy import floating as Limits  # noqa: N812
    from numpy import floating as NextAction  # noqa: N812
    from numpy import floating as Outputs  # noqa: N812
else:
    Action, Costs, Limits, Outputs = ActionType(), CostsType(), LimitsType(), OutputsType()
    NextAction = NextActionType()

COSTS = "costs"  # the field that has what a step cost
NEXT_ACTION, HAS_NEXT = "next_action", "has_next"  # what was done after it, and whether that is known


def reads_costs(declared: type | None) -> bool:
    """Whether a class declares a field with a number for each constraint."""
    return any(isinstance(kind, CostsType) for kind in _annotations(declared).values())


def reads_next(declared: type | None) -> bool:
    """Whether a class declares the recorded action after that of a row."""
    return any(isinstance(kind, NextActionType) for kind in _annotations(declared).values())


def fields_of(declared: type | None, head: Head, config: Any, constraints: int = 1) -> list[Field]:
    """The fields that a class declares, in an environment of so many constraints; none where there is no class."""
    if declared is None:
        return []
    found = []
    for name, kind in _annotations(declared).items():
        if isinstance(kind, ActionType):
            rows = kind.rows
            if isinstance(rows, str):
                if not hasattr(config, rows):
                    known = [setting.name for setting in dataclasses.fields(config)]
                    raise DefinitionError(
                        f"{declared.__module__}: field {name!r} of {declared.__qualname__} is an Action[{rows!r}], and"
                        f" Config has no setting {rows!r}{nearest(rows, known)}"
                    )
                rows = getattr(config, rows)
            shape = (head.action_size,) if rows is None else (rows, head.action_size)
            found.append(Field(name, head.action_dtype, shape))
        elif isinstance(kind, NextActionType):
            if name != NEXT_ACTION:
                raise DefinitionError(
                    f"{declared.__module__}: field {name!r} of {declared.__qualname__} is a NextAction: call it"
                    f" {NEXT_ACTION}"
                )
            found += [Field(name, head.action_dtype, (head.action_size,)), Field(HAS_NEXT, np.int8)]
        elif isinstance(kind, CostsType):
            found.append(Field(name, np.float32, (constraints,)))
        elif isinstance(kind, LimitsType):
            found.append(Field(name, np.float32, (len(config.limited),)))
        elif isinstance(kind, OutputsType):
            found.append(Field(name, np.float32, (head.outputs,)))
        elif isinstance(kind, FieldType):
            found.append(Field(name, kind.scalar, kind.shape))
        elif isinstance(kind, type) and issubclass(kind, np.generic):
            found.append(Field(name, kind))
        else:
            raise DefinitionError(
                f"{declared.__module__}: field {name!r} of {declared.__qualname__} is annotated {kind!r}; write"
                " float32, int32, float32[3], Action, Costs, Limits, NextAction or Outputs"
            )
    return found


def _annotations(declared: type | None) -> dict[str, Any]:
    """The fields of a class and of those from which it is derived, the oldest first."""
    classes = () if declared is None else reversed(declared.__mro__)
    return {name: kind for one in classes for name, kind in inspect.get_annotations(one, eval_str=True).items()}
