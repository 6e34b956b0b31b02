"""Numbers by name, of which some come several at a time: one for each of the labels that a setting lists.

In a function such a one is an array, `numbers.multiplier[k]`. Everywhere else its numbers stand side by side under
names of their own, `multiplier/temperature` and `multiplier/pressure`, so that they are counted and saved like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BETWEEN = "/"  # a name and a label


@dataclass(frozen=True)
class Several:
    """A metric with a number for each of the labels that a setting lists, and how these are called, if shown."""

    each: str
    shown: str | None


def several(each: str, shown: str | None) -> Several:
    """Report a number for each of the labels that a setting lists, as `shown/label`."""
    return Several(each, shown)


def flat_names(name: str, each: str | None, config: Any) -> list[str]:
    """The name of a number, or the names of all of its numbers."""
    return [name] if each is None else [f"{name}{BETWEEN}{label}" for label in getattr(config, each)]


def name_of(flat: str) -> str:
    """The name by which functions know a number."""
    return flat.partition(BETWEEN)[0]


def numbers_type(names: Sequence[str], kind: Any) -> np.dtype[Any]:
    """A record of numbers under such names, in which those of one name are an array."""
    fields: dict[str, int] = {}
    for flat in names or ["nothing"]:
        name = name_of(flat)
        fields[name] = fields.get(name, 0) + (BETWEEN in flat)
    return np.dtype([(name, kind, (count,)) if count else (name, kind) for name, count in fields.items()])
