"""Batching of observations passed to an agent: one or several."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from velocirl.networks.observations import batch_size, is_structured, raw_space, write_raw
from velocirl.training.source import Source


def batched(source: Source, observation: Any, masks: Any) -> tuple[NDArray[Any], NDArray[Any] | None, bool]:
    """Return observations with a batch dimension, their masks, and whether there was only one observation."""
    space = source.observation_space
    if is_structured(space):
        count = batch_size(space, observation)
        single = count is None
        shape, dtype = raw_space(space)
        array = np.empty((count or 1, *shape), dtype)
        several = concatenate(space, [observation], create_empty_array(space)) if single else observation
        write_raw(space, several, array)
    else:
        array, single = _batched_array(np.asarray(observation), space, source.id)
    _require_finite(array, source.id)
    if masks is not None:
        masks = np.asarray(masks)
        masks = masks[None] if single and masks.ndim == 1 else masks
    return array, masks, single


def _require_finite(array: NDArray[Any], name: str) -> None:
    """Raise ValueError for non-finite observations, as exported controllers do: normalizing would hide an infinity."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = array.reshape(len(array), -1)
        row, number = (int(place) for place in np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(
            f"an observation of {name} is not finite: number {number} of row {row} is {rows[row, number]}; choose what"
            " to do without it before you ask for an action"
        )


def _batched_array(array: NDArray[Any], space: Space[Any], name: str) -> tuple[NDArray[Any], bool]:
    shape = space.shape or ()
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise ValueError(f"an observation of {name} has shape {shape}, got {array.shape}")
    if array.dtype != space.dtype and not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):
        raise ValueError(f"an observation of {name} is {space.dtype}, got {array.dtype}")
    if single:
        array = array[None]
    if array.dtype != space.dtype:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite and are rejected
            array = array.astype(space.dtype)
    return (array if shape else array[:, None]), single
