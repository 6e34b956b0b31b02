"""What is seen and done as flat rows of numbers, each number under a name and with its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.engine.action_parts import parts_of

Array = NDArray[Any]
MOST = 1024  # numbers of an observation that are recorded: a picture is none that anybody plots


class Channels(NamedTuple):
    """The names and units of the numbers of a space's values, in their order."""

    space: Space[Any]
    names: tuple[str, ...]
    units: tuple[str, ...]

    def rows(self, values: Any, count: int) -> Array:
        """Values of several copies as rows, (copies, numbers); of a stack it is the newest frame that has names."""
        if not self.names:
            return np.zeros((count, 0), np.float32)
        parts = [np.asarray(_inside(values, part.path)).reshape(count, -1) for part in parts_of(self.space)]
        return np.concatenate(parts, axis=1)[:, -len(self.names) :]


def channels_of(space: Space[Any], kind: str, named: Mapping[str, str]) -> Channels:
    """Those that an environment names, or else the numbers of its space by their places: observation[0]."""
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
