"""Fields that an algorithm adds to a row: stored with each step, or used during an update.

They are declared as an environment declares its state, as a class of annotations:

    class Scratch:
        next_action: Action            # an action: the size of the action space
        candidates: Action["samples"]  # several actions; the setting `samples` is their number
        next_log_probability: float32
        costs: Costs                   # one number per constraint; under this name, the costs of the step
        cost_values: Limits            # one number per limit in the setting `limited`
        next_action: NextAction        # from recorded data, the action after the step; see below
        old_outputs: Outputs           # one number per output column of the policy

A class of fields may be derived from another, and inherits its fields.

A field `costs` is written when a step is recorded. Without this field, costs are not recorded at all.

A field `next_action: NextAction` adds a second field, `has_next`: 1, or 0 where an episode ended and the data does not
have the action that would have followed.
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
    """Type of a field that is an action, or with an index several actions."""

    def __init__(self, rows: int | str | None = None) -> None:
        self.rows = rows

    def __getitem__(self, rows: int | str) -> ActionType:
        """Return the type of `rows` actions: a number, or the name of a setting."""
        return ActionType(rows)


class CostsType:
    """Type of a field with a number for each constraint."""


class LimitsType:
    """Type of a field with a number for each limit."""


class NextActionType:
    """Type of a field with the recorded next action."""


class OutputsType:
    """Type of a field that keeps the policy network's outputs."""


if TYPE_CHECKING:
    from numpy import floating as Action  # noqa: N812
    from numpy import floating as Costs  # noqa: N812
    from numpy import floating as Limits  # noqa: N812
    from numpy import floating as NextAction  # noqa: N812
    from numpy import floating as Outputs  # noqa: N812
else:
    Action, Costs, Limits, Outputs = ActionType(), CostsType(), LimitsType(), OutputsType()
    NextAction = NextActionType()

COSTS = "costs"  # the field with the costs of a step
NEXT_ACTION, HAS_NEXT = "next_action", "has_next"  # the recorded next action, and whether it is known


def reads_costs(declared: type | None) -> bool:
    """Return whether a class declares a field with a number for each constraint."""
    return any(isinstance(kind, CostsType) for kind in _annotations(declared).values())


def reads_next(declared: type | None) -> bool:
    """Return whether a class declares the recorded next action."""
    return any(isinstance(kind, NextActionType) for kind in _annotations(declared).values())


def fields_of(declared: type | None, head: Head, config: Any, constraints: int = 1) -> list[Field]:
    """Return the fields that a class declares, in an environment with `constraints` constraints; none if it is None."""
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
    """Return the annotated fields of a class and its base classes, base classes first."""
    classes = () if declared is None else reversed(declared.__mro__)
    return {name: kind for one in classes for name, kind in inspect.get_annotations(one, eval_str=True).items()}
