"""Minari's directory layout, and conversion of spaces to and from its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from velocirl.buffers.data.spaces import space_of
from velocirl.engine.disk.confined import ConfinedPath

DATA, FILE, DESCRIPTION = "data", "main_data.hdf5", "metadata.json"
VERSION = "0.5.0"  # of Minari: later versions read this one
OWN = "velocirl"  # metadata key that holds all of velocirl's own dataset information
COSTS, COST = "costs", "cost"  # keys of a step's infos: by constraint, and summed


def data_directory(path: str | Path) -> ConfinedPath:
    """Return the directory with the files: the directory itself, or its `data`, as in Minari."""
    within = ConfinedPath(Path(path))
    return within / DATA if (within / DATA).exists() else within


def space_text(space: Space[Any]) -> str:
    """Serialize a space in Minari's JSON."""
    return json.dumps(_words(space))


def space_from_text(text: Any) -> Space[Any]:
    """Parse a space from Minari's JSON; its limits may be Infinity, which strict JSON does not allow."""
    try:
        return space_of(_ours(json.loads(text)))
    except (TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"it describes a space that is none: {str(text)[:80]}") from error


def _words(space: Space[Any]) -> dict[str, Any]:
    match space:
        case Box():
            limits = {"low": space.low.tolist(), "high": space.high.tolist()}
            return {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **limits}
        case Discrete():
            return {"type": "Discrete", "dtype": str(space.dtype), "start": int(space.start), "n": int(space.n)}
        case MultiDiscrete():
            counts = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"type": "MultiDiscrete", "dtype": str(space.dtype), **counts}
        case MultiBinary():
            shape = [int(size) for size in space.shape]
            return {"type": "MultiBinary", "n": shape[0] if len(shape) == 1 else shape}
        case Dict():
            return {"type": "Dict", "subspaces": {key: _words(child) for key, child in space.spaces.items()}}
        case Tuple():
            return {"type": "Tuple", "subspaces": [_words(child) for child in space.spaces]}
    raise ValueError(f"{space} cannot be written in Minari's layout")


def _ours(words: dict[str, Any]) -> dict[str, Any]:
    """Convert Minari's description of a space to velocirl's."""
    if "subspaces" not in words:
        if words["type"] == "MultiBinary":
            return {"type": "MultiBinary", "shape": words["n"] if isinstance(words["n"], list) else [words["n"]]}
        return words
    inner = words["subspaces"]
    ours = {key: _ours(child) for key, child in inner.items()} if isinstance(inner, dict) else [*map(_ours, inner)]
    return {"type": words["type"], "spaces": ours}


def hdf5() -> Any:
    """Import and return h5py; raise if it is not installed."""
    try:
        import h5py
    except ImportError:
        raise ValueError("Minari's layout needs h5py: pip install 'velocirl[data]'") from None
    return h5py
