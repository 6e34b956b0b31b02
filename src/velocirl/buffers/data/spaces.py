"""Spaces as JSON, so that a dataset describes its own numbers; spaces are read by name, and nothing else is created."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from velocirl.engine.disk.safetensors_layout import NAMES

KINDS = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
MOST_NUMBERS = 2**24  # of one observation or action


def space_document(space: Space[Any]) -> dict[str, Any]:
    """Return a space as plain JSON. Raises ValueError if its values have no fixed size."""
    if isinstance(space, Box):
        limits = {"low": _limits(space.low), "high": _limits(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **limits}
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, MultiDiscrete):
        counts = {"nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
        return {"type": "MultiDiscrete", **counts, "dtype": str(space.dtype)}
    if isinstance(space, MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, Dict):
        if bad := [key for key in space.spaces if not isinstance(key, str) or "/" in key or not key]:
            raise ValueError(f"a data set names its columns by the keys of a Dict, and {bad[0]!r} cannot be a name")
        return {"type": "Dict", "spaces": {key: space_document(child) for key, child in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": [space_document(child) for child in space.spaces]}
    raise ValueError(f"{space} cannot be recorded; {KINDS} can")


def space_from(document: Any) -> Space[Any]:
    """Return the space of a document. Raises ValueError unless `space_document` writes it in the same way."""
    space = space_of(document)
    if space_document(space) != document:
        raise ValueError(f"it describes a space in words that velocirl does not use: {str(document)[:80]}")
    return space


def space_of(document: Any) -> Space[Any]:
    """Return the space of another writer's document, which may describe the same space in more words."""
    try:
        return _made(document)
    except (AssertionError, AttributeError, LookupError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"it describes a space that is none: {str(document)[:80]}") from error


def _made(document: dict[str, Any]) -> Space[Any]:
    match document["type"]:
        case "Box":
            shape, dtype = tuple(document["shape"]), np.dtype(document["dtype"])
            _check_size(shape)
            if dtype not in NAMES:
                raise ValueError(f"it describes a Box of {dtype}")
            low, high = (np.broadcast_to(np.asarray(document[end], dtype), shape) for end in ("low", "high"))
            return Box(low, high, shape, dtype.type)
        case "Discrete":
            return Discrete(document["n"], start=document["start"], dtype=_whole(document))
        case "MultiDiscrete":
            nvec, start = np.asarray(document["nvec"], np.int64), np.asarray(document["start"], np.int64)
            return MultiDiscrete(nvec, start=start, dtype=_whole(document))
        case "MultiBinary":
            shape = tuple(document["shape"])
            _check_size(shape)
            return MultiBinary(shape[0] if len(shape) == 1 else shape)
        case "Dict":
            return Dict([(key, _made(child)) for key, child in document["spaces"].items()])
        case "Tuple":
            return Tuple([_made(child) for child in document["spaces"]])
    raise ValueError(f"it describes a space of the type {str(document['type'])[:40]!r}; there are {KINDS}")


def _whole(document: dict[str, Any]) -> Any:
    dtype = np.dtype(document["dtype"])
    if dtype.kind not in "iu":
        raise ValueError(f"it describes choices of {dtype}")
    return dtype.type


def _check_size(shape: tuple[Any, ...]) -> None:
    size = 1
    for length in shape:
        if type(length) is not int or length < 0 or (size := size * max(length, 1)) > MOST_NUMBERS:
            raise ValueError(f"it describes values of the shape {str(shape)[:40]}")


def _limits(limits: NDArray[Any]) -> Any:
    """Return one number if all are equal; non-finite limits become words, which numpy reads as the same number."""
    plain = limits.astype(object)
    if limits.dtype.kind == "f":
        plain = np.vectorize(lambda one: one if np.isfinite(one) else str(one), otypes=[object])(limits.astype(float))
    flat = plain.reshape(-1)
    return flat[0] if flat.size and all(one == flat[0] for one in flat[1:]) else plain.tolist()
