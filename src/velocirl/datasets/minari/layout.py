"""What Minari's directories are made of, and spaces in its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from velocirl.buffers.data.spaces import space_of
from velocirl.engine.disk.confined import ConfinedPath

DATA, FILE, DESCRIPTION = "data", "main_data.hdf5", "metadata.json"
VERSION = "0.5.0"  # of Minari: later ones read what this one wrote
OWN = "velocirl"  # the key of the description under which a data set of ours says all that it says of itself
COSTS, COST = "costs", "cost"  # of a step's infos: by constraint, and all together


def data_directory(path: str | Path) -> ConfinedPath:
    """Where the files lie: in the directory itself, or in its `data`, as Minari has it."""
    within = ConfinedPath(Path(path))
    return within / DATA if (within / DATA).exists() else within


def space_text(space: Space[Any]) -> str:
    """A space as Minari writes it."""
    return json.dumps(_words(space))


def space_from_text(text: Any) -> Space[Any]:
    """The space that Minari wrote; its limits may be Infinity, which strict JSON does not have."""
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
    """Minari's words for a space in ours."""
    if "subspaces" not in words:
        if words["type"] == "MultiBinary":
            return {"type": "MultiBinary", "shape": words["n"] if isinstance(words["n"], list) else [words["n"]]}
        return words
    inner = words["subspaces"]
    ours = {key: _ours(child) for key, child in inner.items()} if isinstance(inner, dict) else [*map(_ours, inner)]
    return {"type": words["type"], "spaces": ours}


def hdf5() -> Any:
    """The package that reads and writes HDF5, where it is installed."""
    try:
        import h5py
    except ImportError:
        raise ValueError("Minari's layout needs h5py: pip install 'velocirl[data]'") from None
    return h5py
