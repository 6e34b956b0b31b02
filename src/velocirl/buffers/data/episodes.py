"""Single episodes, and their conversion to columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import OBSERVATIONS, Column, DatasetError, columns_of
from velocirl.buffers.data.info import DatasetInfo


@dataclass(frozen=True)
class Episode:
    """Recorded episode: n steps, and n + 1 observations.

    For Dict and Tuple spaces, observations and actions are dicts and tuples of arrays. Without terminations and
    truncations the episode counts as truncated at its end; without costs, no constraint was violated.
    """

    observations: Any  # (steps + 1, ...)
    actions: Any  # (steps, ...)
    rewards: Any  # (steps,)
    costs: Any = None  # (steps, constraints)
    terminations: Any = None  # (steps,)
    truncations: Any = None  # (steps,)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def terminated(self) -> bool:
        """True if the episode ended by termination rather than by truncation."""
        return bool(self.terminations is not None and len(self) and self.terminations[-1])


def columns_from(episodes: Iterable[Episode | Mapping[str, Any]], info: DatasetInfo) -> dict[str, NDArray[Any]]:
    """Return the columns of consecutive episodes. Raises DatasetError with the number of one that does not fit."""
    wanted = columns_of(info)
    parts: dict[str, list[NDArray[Any]]] = {
        name: [np.zeros((0, *one.shape), one.dtype)] for name, one in wanted.items()
    }
    starts = [0]
    for number, given in enumerate(episodes):
        episode = given if isinstance(given, Episode) else _episode(given, number)
        for name, array in _columns(episode, number, wanted).items():
            parts[name].append(array)
        starts.append(starts[-1] + len(episode))
    return {name: np.concatenate(some) for name, some in parts.items()} | {"starts": np.array(starts, np.int64)}


def _episode(given: Mapping[str, Any], number: int) -> Episode:
    known = [one.name for one in fields(Episode)]
    if odd := [name for name in given if name not in known]:
        raise DatasetError(f"episode {number} has {odd[0]!r}; an episode has {', '.join(known)}")
    if missing := [name for name in known[:3] if name not in given]:
        raise DatasetError(f"episode {number} has no {missing[0]}")
    return Episode(**given)


def _columns(episode: Episode, number: int, wanted: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
    """Return the columns of one episode, in the types of the spaces."""
    steps = len(episode)
    terminations = np.zeros(steps, np.bool_) if episode.terminations is None else np.asarray(episode.terminations)
    truncations = episode.truncations
    if truncations is None:
        truncations = np.zeros(steps, np.bool_)
        truncations[-1:] = not episode.terminated
    plain = {
        "rewards": episode.rewards,
        "costs": np.zeros((steps, *wanted["costs"].shape), np.float32) if episode.costs is None else episode.costs,
        "terminations": terminations,
        "truncations": truncations,
    }
    found = {}
    for name, column in wanted.items():
        kind = name.partition("/")[0]
        values = plain.get(name)
        if column.part is not None:
            values = getattr(episode, kind)
            try:
                for key in column.part.path:
                    values = values[key]
            except (LookupError, TypeError):
                raise DatasetError(f"episode {number} has no {name}") from None
        rows = steps + 1 if kind == OBSERVATIONS else steps
        found[name] = _fitting(np.asarray(values), column, rows, f"{name} of episode {number}")
    return found


def _fitting(values: NDArray[Any], column: Column, rows: int, place: str) -> NDArray[Any]:
    """Convert values to the type of their column. Raises DatasetError if integers or booleans would change."""
    shape = (rows, *column.shape)
    if values.dtype.hasobject or values.dtype.kind not in "biuf":
        raise DatasetError(f"{place} has values of the type {values.dtype}, and data are numbers")
    if values.shape != shape:
        raise DatasetError(f"{place} has the shape {values.shape}, and must have {shape}")
    if column.dtype.kind in "biu" and values.dtype != column.dtype:
        with np.errstate(invalid="ignore"):
            whole = values.astype(column.dtype)
        if not np.array_equal(whole, values):
            raise DatasetError(f"{place} has values of {values.dtype} that {column.dtype} does not have")
        return whole
    return values.astype(column.dtype, copy=False)
