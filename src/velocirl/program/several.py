"""Named scalars; some have one entry per label of a setting.

In a function, a scalar with labels is an array, `numbers.multiplier[k]`. Everywhere else its entries have flat names,
`multiplier/temperature` and `multiplier/pressure`, so that they are counted and saved like other scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BETWEEN = "/"  # separates a name from a label


@dataclass(frozen=True)
class Several:
    """Metric with one entry per label of the setting `each`; `shown` is its reported name, or None."""

    each: str
    shown: str | None


def several(each: str, shown: str | None) -> Several:
    """Report one number per label of the setting `each`, as `shown/label`."""
    return Several(each, shown)


def flat_names(name: str, each: str | None, config: Any) -> list[str]:
    """Return the flat names of a number: its own, or one per label of the setting `each`."""
    return [name] if each is None else [f"{name}{BETWEEN}{label}" for label in getattr(config, each)]


def name_of(flat: str) -> str:
    """Return the name under which functions read the number with this flat name."""
    return flat.partition(BETWEEN)[0]


def numbers_type(names: Sequence[str], kind: Any) -> np.dtype[Any]:
    """Return the record type of numbers with these flat names; numbers with labels are arrays."""
    fields: dict[str, int] = {}
    for flat in names or ["nothing"]:
        name = name_of(flat)
        fields[name] = fields.get(name, 0) + (BETWEEN in flat)
    return np.dtype([(name, kind, (count,)) if count else (name, kind) for name, count in fields.items()])
