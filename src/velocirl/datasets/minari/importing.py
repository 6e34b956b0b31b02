"""Reading data sets in Minari's layout, by whomever they were written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple
from numpy.typing import NDArray

from velocirl import __version__
from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.episodes import Episode, columns_from
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.writer import DatasetWriter, Growing, InMemory
from velocirl.datasets.minari.layout import COST, COSTS, DESCRIPTION, FILE, OWN, data_directory, hdf5, space_from_text
from velocirl.engine.disk.files import open_plain, parse_json, read_plain

TOGETHER = 2**16  # steps that are taken over at once
DENSEST = 1100  # bytes that a compressed one can stand for

Progress = Callable[[int, int], None]


def import_minari(path: str | Path, into: str | Path | None = None, progress: Progress | None = None) -> Dataset:
    """The data set of a directory in Minari's layout, as a file of ours at `into`, or in memory.

    One that velocirl wrote comes back the same, bit for bit. Of others, rewards become single precision, `cost` or
    `costs` among the infos become costs, and an episode whose end nobody told counts as cut off there.
    """
    directory = data_directory(path)
    try:
        description = _description(directory)
        with _opened(directory / FILE) as file:
            info = _info(description, file)
            if into is None:
                growing = InMemory(info)
                _take_over(file, info, description, growing, progress)
                return growing.finish()
            with DatasetWriter(into, info) as writer:
                _take_over(file, info, description, writer, progress)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    return Dataset.load(into)


def _opened(path: Path) -> Any:
    with open_plain(path):  # a pipe would wait for ever
        pass
    try:
        return hdf5().File(path, "r")
    except OSError as error:
        raise DatasetError(f"its {FILE} is damaged, or no HDF5 file ({error})") from None


def _description(directory: Path) -> dict[str, Any]:
    path = directory / DESCRIPTION
    if not path.is_file() or not (directory / FILE).is_file():
        raise DatasetError(f"it is no data set in Minari's layout, which has {DESCRIPTION} and {FILE} (stored as HDF5)")
    try:
        found = json.loads(read_plain(path))
        total, form = found["total_episodes"], found["data_format"]
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise DatasetError(f"its {DESCRIPTION} is not one that Minari writes ({error})") from None
    if form != "hdf5":
        raise DatasetError(f"it is stored as {form!r}; velocirl reads hdf5")
    if type(total) is not int or total < 0:
        raise DatasetError(f"it has {total!r} episodes")
    return found


def _info(description: dict[str, Any], file: Any) -> DatasetInfo:
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
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DatasetError(f"its {DESCRIPTION} cannot be understood: {error}") from None


def _constraints(file: Any) -> tuple[str, ...]:
    """Names for the costs that the infos of somebody else's data have."""
    infos = file.get("episode_0/infos")
    if infos is None:
        return ()
    if COSTS in infos and (width := _array(infos, COSTS)[:1].size):
        return tuple(f"cost_{place}" for place in range(width))
    return (COST,) if COST in infos else ()


def _take_over(
    file: Any, info: DatasetInfo, description: dict[str, Any], into: Growing, progress: Progress | None
) -> None:
    if description.get("jpeg_encoding", False) and _has_pictures(info.observation_space):
        raise DatasetError("its pictures are JPEGs, which are not what was seen; write them with jpeg_encoding=False")
    total, waiting, steps = description["total_episodes"], [], 0
    for number, episode in enumerate(_episodes(file, total, info)):
        waiting.append(episode)
        steps += len(episode)
        if steps >= TOGETHER:
            into.add(columns_from(waiting, info))
            waiting, steps = [], 0
        if progress is not None:
            progress(number + 1, total)
    into.add(columns_from(waiting, info))


def _episodes(file: Any, total: int, info: DatasetInfo) -> Iterator[Episode]:
    for number in range(total):
        group = _inside(file, f"episode_{number}", hdf5().Group)
        numbers = {name: _array(group, name) for name in ("rewards", "terminations", "truncations")}
        costs = None
        if info.constraints:
            infos = _inside(group, "infos", hdf5().Group)
            costs = _array(infos, COSTS if COSTS in infos else COST)
            costs = costs.reshape(len(costs), -1)[1:]
        ends = [numbers[name].astype(np.bool_) for name in ("terminations", "truncations")]
        if len(ends[0]) and not (ends[0][-1] or ends[1][-1:].any()):
            ends[1] = ends[1].copy()
            ends[1][-1] = True
        yield Episode(
            _values(group, "observations", info.observation_space),
            _values(group, "actions", info.action_space),
            numbers["rewards"],
            costs,
            *ends,
        )


def _values(group: Any, name: str, space: Space[Any]) -> Any:
    if isinstance(space, Dict):
        inner = _inside(group, name, hdf5().Group)
        return {key: _values(inner, key, child) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        inner = _inside(group, name, hdf5().Group)
        return tuple(_values(inner, f"_index_{place}", child) for place, child in enumerate(space.spaces))
    return _array(group, name)


def _inside(group: Any, name: str, kind: type) -> Any:
    """What lies under a name in a group of the same file; a link may lead into any other file."""
    link = group.get(name, getlink=True)
    if not isinstance(link, hdf5().HardLink):
        what = "is missing" if link is None else "is a link, which may lead anywhere"
        raise DatasetError(f"{group.name.rstrip('/')}/{name} {what}")
    found = group[name]
    if not isinstance(found, kind):
        raise DatasetError(f"{found.name} is not a {kind.__name__.lower()}")
    return found


def _array(group: Any, name: str) -> NDArray[Any]:
    found = _inside(group, name, hdf5().Dataset)
    if found.dtype.kind not in "biuf":
        raise DatasetError(f"{found.name} has values of the type {found.dtype}, and data are numbers")
    if found.external or found.is_virtual:
        raise DatasetError(f"{found.name} lies in other files, which are not read")
    if found.nbytes > DENSEST * found.id.get_storage_size() + 4096:
        raise DatasetError(f"{found.name} says that it has {found.nbytes} bytes, which are not there")
    return found[()]


def _has_pictures(space: Space[Any]) -> bool:
    if isinstance(space, Dict | Tuple):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return any(map(_has_pictures, children))
    # What Minari takes for a picture: bytes of all values, not too small.
    shape, whole = space.shape or (), isinstance(space, Box) and (space.low == 0).all() and (space.high == 255).all()
    return bool(whole and space.dtype == np.uint8 and len(shape) in (2, 3) and min(shape[:2]) >= 32)
