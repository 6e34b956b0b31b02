"""Observations and actions as flat rows of numbers, each with a name and a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.engine.action_parts import parts_of

Array = NDArray[Any]
MOST = 1024  # numbers of an observation that are recorded: images are not


class Channels(NamedTuple):
    """Names and units of the numbers of a space's values, in their order."""

    space: Space[Any]
    names: tuple[str, ...]
    units: tuple[str, ...]

    def rows(self, values: Any, count: int) -> Array:
        """Return values of several environments as rows, (envs, numbers); of a stack, only the newest frame."""
        if not self.names:
            return np.zeros((count, 0), np.float32)
        parts = [np.asarray(_inside(values, part.path)).reshape(count, -1) for part in parts_of(self.space)]
        return np.concatenate(parts, axis=1)[:, -len(self.names) :]


def channels_of(space: Space[Any], kind: str, named: Mapping[str, str]) -> Channels:
    """Return the channels named by an environment, or else the numbers of its space by index: observation[0]."""
    if named:
        return Channels(space, tuple(named), tuple(named.values()))
    parts = parts_of(space)
    if sum(part.size for part in parts) > MOST:
        return Channels(space, (), ())
    names = [name for part in parts for name in _places("/".join((kind, *map(str, part.path))), part.shape)]
    return Channels(space, tuple(names), ("",) * len(names))


def _places(name: str, shape: Sequence[int]) -> list[str]:
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, place))}]" for place in np.ndindex(*shape)]


def _inside(values: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        values = values[key]
    return values
