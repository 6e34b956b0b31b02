"""Datasets that grow episode by episode: in memory, or in a file that may become larger than memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import check_structure, check_values, columns_of
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.file import CHUNK, Stored, require_place, write_columns
from velocirl.buffers.data.info import DatasetInfo
from velocirl.engine.disk.safetensors_layout import tensor_bytes

Array = NDArray[Any]


class Growing(Protocol):
    """Receiver of episodes."""

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add whole episodes, as the columns of a dataset. Raises DatasetError if they cannot be learned from."""
        ...


class InMemory:
    """Dataset that grows in memory."""

    def __init__(self, info: DatasetInfo) -> None:
        self._info, self._parts = info, [Dataset.from_episodes([], info)]

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add whole episodes."""
        part = Dataset(self._info, columns)
        part.validate()
        self._parts.append(part)

    def finish(self) -> Dataset:
        """Return all that was added, as one dataset."""
        return Dataset.concatenate(self._parts)


class DatasetWriter:
    """File that grows: `with DatasetWriter(path, info) as writer: writer.add(columns)`.

    Columns are in unnamed files until all data are there; then they are joined in one file, which gets its name. An
    interruption leaves the previous file, and nothing else. The disk needs room for the data twice. An existing file is
    replaced only with `overwrite=True`.
    """

    def __init__(self, path: str | Path, info: DatasetInfo, *, overwrite: bool = False) -> None:
        self.path, self._info, self._overwrite = Path(path), info, overwrite
        require_place(self.path, overwrite=overwrite)
        self._stack = ExitStack()
        names = [*columns_of(info), "starts"]
        self._files = {name: self._stack.enter_context(_nameless(self.path)) for name in names}
        self._rows = dict.fromkeys(names, 0)
        self._append("starts", np.zeros(1, np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        with self._stack:
            if kind is None:
                columns = {name: self._stored(name) for name in self._files}
                write_columns(self.path, self._info, columns, overwrite=self._overwrite)

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add whole episodes."""
        check_structure(self._info, columns)
        check_values(self._info, columns)
        before = self._rows["rewards"]
        for name, column in columns.items():
            self._append(name, column[1:] + before if name == "starts" else column)

    def _append(self, name: str, column: Array) -> None:
        try:
            self._files[name].write(tensor_bytes(np.ascontiguousarray(column)))
        except OSError as error:
            reason = f"could not be written ({error.strerror}); what was there before is untouched"
            raise OSError(error.errno, reason, str(self.path)) from error
        self._rows[name] += len(column)

    def _stored(self, name: str) -> Stored:
        file, wanted = self._files[name], columns_of(self._info).get(name)
        dtype, shape = (np.dtype(np.int64), ()) if wanted is None else (wanted.dtype, wanted.shape)

        def pieces() -> Iterator[memoryview]:
            file.seek(0)
            left = self._rows[name] * dtype.itemsize * prod(shape)
            while left:
                piece = file.read(min(left, CHUNK))
                left -= len(piece)
                yield memoryview(piece)

        return Stored(dtype, (self._rows[name], *shape), pieces)


def _nameless(path: Path) -> Any:
    try:
        return tempfile.TemporaryFile(dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, f"could not be written ({error.strerror})", str(path)) from error
