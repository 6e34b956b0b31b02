"""Import of datasets in Minari's layout, written by velocirl or by others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple

from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.episodes import Episode, columns_from
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.writer import DatasetWriter, Growing, InMemory
from velocirl.datasets.minari.hdf5 import HDF5File, opened, understood
from velocirl.datasets.minari.layout import COST, COSTS, DESCRIPTION, FILE, OWN, data_directory, space_from_text
from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import parse_json, read_plain
from velocirl.version import __version__

TOGETHER = 2**16  # steps that are converted at once

Progress = Callable[[int, int], None]


def import_minari(
    path: str | Path, into: str | Path | None = None, progress: Progress | None = None, *, overwrite: bool = False
) -> Dataset:
    """Return the dataset of a directory in Minari's layout, written to `into` or in memory.

    Datasets that velocirl wrote are restored bit for bit. In others, rewards become float32, and `cost` or `costs`
    among the infos become costs. An episode without a recorded end counts as truncated at its last step.
    """
    try:
        directory = data_directory(path)
        description = _description(directory)
        with opened(directory / FILE) as file:
            info = _info(description, file)
            if into is None:
                growing = InMemory(info)
                _take_over(file, info, description, growing, progress)
                return growing.finish()
            with DatasetWriter(into, info, overwrite=overwrite) as writer:
                _take_over(file, info, description, writer, progress)
    except (DatasetError, NotPlainFileError) as error:
        raise DatasetError(f"{path}: {error}") from None
    return Dataset.load(into)


def _description(directory: ConfinedPath) -> dict[str, Any]:
    path = directory / DESCRIPTION
    if not path.exists() or not (directory / FILE).exists():
        raise DatasetError(f"it is no data set in Minari's layout, which has {DESCRIPTION} and {FILE} (stored as HDF5)")
    try:
        found = json.loads(read_plain(path))
        total, form = found["total_episodes"], found["data_format"]
    except (LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise DatasetError(f"its {DESCRIPTION} is not one that Minari writes ({error})") from None
    if form != "hdf5":
        raise DatasetError(f"it is stored as {repr(form)[:40]}; velocirl reads hdf5")
    if type(total) is not int or total < 0:
        raise DatasetError(f"it has {repr(total)[:40]} episodes")
    return found


def _info(description: dict[str, Any], file: HDF5File) -> DatasetInfo:
    try:
        if OWN in description:
            return DatasetInfo.from_document(parse_json(description[OWN]))
        spaces = {name: space_from_text(description.get(name)) for name in ("observation_space", "action_space")}
        environment = None
        if isinstance(description.get("env_spec"), str):
            environment = f"gym:{json.loads(description['env_spec'])['id']}"
        found = {key: description.get(name) for key, name in (("random", "ref_min_score"), ("expert", "ref_max_score"))}
        references = {name: float(value) for name, value in found.items() if value is not None}
        name = description.get("algorithm_name")
        policy = name if isinstance(name, str) else None
        more = {"references": references, "policy": policy, "version": __version__}
        return DatasetInfo(**spaces, environment=environment, constraints=_constraints(file), **more)
    except DatasetError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise DatasetError(f"its {DESCRIPTION} cannot be understood: {error}") from None


def _constraints(file: HDF5File) -> tuple[str, ...]:
    """Return names for the costs in the infos of third-party data."""
    first = "episode_0"
    if not file.has(file.root, first) or not file.has(group := file.group(file.root, first), "infos"):
        return ()
    infos = file.group(group, "infos")
    if file.has(infos, COSTS) and (width := file.width(infos, COSTS)):
        return tuple(f"cost_{place}" for place in range(width))
    return (COST,) if file.has(infos, COST) else ()


def _take_over(
    file: HDF5File, info: DatasetInfo, description: dict[str, Any], into: Growing, progress: Progress | None
) -> None:
    if description.get("jpeg_encoding", False) and _has_pictures(info.observation_space):
        raise DatasetError("its pictures are JPEGs, which are not what was seen; write them with jpeg_encoding=False")
    total, waiting, steps = description["total_episodes"], [], 0
    for number in range(total):
        with understood(FILE):
            waiting.append(_episode(file, number, info))
        steps += len(waiting[-1])
        if steps >= TOGETHER:
            into.add(_columns(waiting, info))
            waiting, steps = [], 0
        if progress is not None:
            progress(number + 1, total)
    into.add(_columns(waiting, info))


def _columns(episodes: list[Episode], info: DatasetInfo) -> dict[str, Any]:
    with understood(FILE):
        return columns_from(episodes, info)


def _episode(file: HDF5File, number: int, info: DatasetInfo) -> Episode:
    group = file.group(file.root, f"episode_{number}")
    numbers = {name: file.array(group, name) for name in ("rewards", "terminations", "truncations")}
    costs = None
    if info.constraints:
        infos = file.group(group, "infos")
        costs = file.array(infos, COSTS if file.has(infos, COSTS) else COST)
        costs = costs.reshape(len(costs), -1)[1:]
    ends = [numbers[name].astype(np.bool_) for name in ("terminations", "truncations")]
    if len(ends[0]) and not (ends[0][-1] or ends[1][-1:].any()):
        ends[1] = ends[1].copy()
        ends[1][-1] = True
    return Episode(
        _values(file, group, "observations", info.observation_space),
        _values(file, group, "actions", info.action_space),
        numbers["rewards"],
        costs,
        *ends,
    )


def _values(file: HDF5File, group: Any, name: str, space: Space[Any]) -> Any:
    if isinstance(space, Dict):
        inner = file.group(group, name)
        return {key: _values(file, inner, key, child) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        inner = file.group(group, name)
        return tuple(_values(file, inner, f"_index_{place}", child) for place, child in enumerate(space.spaces))
    return file.array(group, name)


def _has_pictures(space: Space[Any]) -> bool:
    if isinstance(space, Dict | Tuple):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return any(map(_has_pictures, children))
    # Minari treats Box spaces of uint8 with full range and at least 32 x 32 pixels as images.
    shape, whole = space.shape or (), isinstance(space, Box) and (space.low == 0).all() and (space.high == 255).all()
    return bool(whole and space.dtype == np.uint8 and len(shape) in (2, 3) and min(shape[:2]) >= 32)
