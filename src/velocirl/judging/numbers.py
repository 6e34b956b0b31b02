"""Observations and actions of any space as rows of numbers, for joint comparison and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from velocirl.networks.encoding import encoding_for
from velocirl.networks.observations import leaves_of, raw_space, write_raw
from velocirl.program.rows.commands import unstretch

Numbers = NDArray[np.float32]
MOST_NUMBERS = 4096  # of an observation: images are not compared number by number


def numbers_of(space: Space[Any], values: Any, count: int) -> Numbers:
    """Return `count` observations or actions as rows; choices are one-hot codes, parts are concatenated."""
    encoding = encoding_for(space, normalise=False)
    if encoding.inputs > MOST_NUMBERS:
        raise ValueError(f"{space} has {encoding.inputs:,} numbers: a policy of pictures is not judged by data")
    shape, dtype = raw_space(space)
    raw, rows = np.empty((count, *shape), dtype), np.empty((count, encoding.inputs), np.float32)
    write_raw(space, values, raw)
    encoding.encode_rows(raw.reshape(count, -1), encoding.affine(), rows)
    return rows


def action_numbers(space: Space[Any], actions: Any, count: int) -> Numbers:
    """Return actions as rows; bounded numbers are scaled to [-1, 1], whatever their units are."""
    return unstretch(space, np.asarray(actions)) if isinstance(space, Box) else numbers_of(space, actions, count)


def is_choice(space: Space[Any]) -> bool:
    """Return whether an action has no continuous numbers: two actions are either equal or different."""
    return not any(isinstance(leaf.space, Box) for leaf in leaves_of(space))
