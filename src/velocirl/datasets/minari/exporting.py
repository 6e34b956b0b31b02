"""Export of a dataset in Minari's layout."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from velocirl.buffers.data.dataset import Dataset
from velocirl.datasets.minari.layout import COST, COSTS, DATA, DESCRIPTION, FILE, OWN, VERSION, hdf5, space_text
from velocirl.engine.disk.writing import strict_json, sync_directory, unfinished_directory

NAMED = re.compile(r"([A-Za-z0-9_.-]+/)*[A-Za-z0-9_.-]+-v\d+")

Progress = Callable[[int, int], None]


def export_minari(
    dataset: Dataset, path: str | Path, dataset_id: str | None = None, progress: Progress | None = None
) -> Path:
    """Write a dataset as a directory that Minari reads: `minari.MinariDataset(path / "data")`.

    `minari.load_dataset(dataset_id)` finds it at `~/.minari/datasets/DATASET_ID`. The id ends in a version, such as
    reactor/medium-v0; by default it is derived from the directory's name. All of velocirl's metadata is kept, so an
    import restores the same dataset; costs are stored among the infos. The export is written completely or not at all.
    """
    path = Path(path)
    name = dataset_id or (path.name if NAMED.fullmatch(path.name) else f"{path.name}-v0")
    if not NAMED.fullmatch(name):
        raise ValueError(f"Minari's ids are words with a version at the end, such as plant/medium-v0: got {name!r}")
    if path.exists():
        raise FileExistsError(f"{path} is there already: choose another path, or remove it first")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no directory {path.parent}; make it first")
    hdf5()
    try:
        with unfinished_directory(path) as unfinished:
            data = unfinished / DATA
            data.mkdir()
            _write_episodes(dataset, data / FILE, progress)
            description = _description(dataset, name, (data / FILE).stat().st_size)
            (data / DESCRIPTION).write_text(strict_json(description), encoding="utf-8")
            unfinished.chmod(0o755)  # readable by others, as Minari's own; only unfinished directories are private
            unfinished.rename(path)
    except OSError as error:
        reason = f"could not be written ({error.strerror or error}); nothing is left of it"
        raise OSError(error.errno, reason, str(path)) from error
    sync_directory(path.parent)
    return path


def _write_episodes(dataset: Dataset, path: Path, progress: Progress | None) -> None:
    with _ForgivingFile(path) as storage, hdf5().File(storage, "w") as file:
        for number in range(dataset.episodes):
            episode, group = dataset.episode(number), file.create_group(f"episode_{number}")
            group.attrs["id"], group.attrs["total_steps"] = number, len(episode)
            _put(group, "observations", episode.observations)
            _put(group, "actions", episode.actions)
            for name in ("rewards", "terminations", "truncations"):
                group.create_dataset(name, data=getattr(episode, name))
            if dataset.info.constraints:  # infos also have a row for the reset
                costs = np.concatenate([np.zeros_like(episode.costs[:1]), episode.costs])
                _put(group, "infos", {COSTS: costs, COST: costs.sum(axis=1)})
            storage.require_room()
            if progress is not None:
                progress(number + 1, dataset.episodes)


class _ForgivingFile(io.RawIOBase):
    """File object whose write errors are raised late: HDF5 aborts the process if it cannot flush its cache.

    After the first failed write, further writes are discarded until `require_room` or the end raises.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._place, self._size = 0, 0
        self._error: OSError | None = None

    def require_room(self) -> None:
        """Raise the first write error."""
        if self._error is not None:
            raise self._error

    def __exit__(self, kind: Any, *more: Any) -> None:
        super().__exit__(kind, *more)
        if kind is None or issubclass(kind, Exception):  # HDF5's errors about discarded writes do not name the cause
            self.require_room()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def write(self, data: Any) -> int:
        left = view = memoryview(data).cast("B")
        with self._forgiven():
            while left and self._error is None:
                done = os.pwrite(self._handle, left, self._place + len(view) - len(left))
                left = left[done:]
        self._place += len(view)
        self._size = max(self._size, self._place)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = os.pread(self._handle, len(view), self._place)
        view[: len(found)] = found
        view[len(found) :] = bytes(len(view) - len(found))  # discarded, or beyond the end
        self._place += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._place if size is None else size
        with self._forgiven():
            os.ftruncate(self._handle, self._size)
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            with self._forgiven():
                os.fsync(self._handle)
            os.close(self._handle)
        super().close()

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._error = self._error or error


def _put(group: Any, name: str, values: Any) -> None:
    if isinstance(values, dict | tuple):
        inner = values.items() if isinstance(values, dict) else ((f"_index_{i}", one) for i, one in enumerate(values))
        within = group.create_group(name)
        for key, one in inner:
            _put(within, key, one)
    else:
        group.create_dataset(name, data=values)


def _description(dataset: Dataset, name: str, size: int) -> dict[str, Any]:
    info = dataset.info
    found: dict[str, Any] = {
        "dataset_id": name,
        "total_episodes": dataset.episodes,
        "total_steps": len(dataset),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "dataset_size": round(size / 1e6, 1),
        "minari_version": VERSION,
        "observation_space": space_text(info.observation_space),
        "action_space": space_text(info.action_space),
        "author": [],
        "author_email": [],
        OWN: strict_json(info.document()),
    }
    if info.policy:
        found["algorithm_name"] = info.policy
    for key, reference in (("ref_min_score", "random"), ("ref_max_score", "expert")):
        if reference in info.references:
            found[key] = float(info.references[reference])
    for environment in (f"velocirl/{info.environment}", str(info.environment).removeprefix("gym:")):
        with contextlib.suppress(gymnasium.error.Error):
            found["env_spec"] = gymnasium.spec(environment).to_json()
            break
    return found
