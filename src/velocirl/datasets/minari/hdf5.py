"""Untrusted HDF5 files: links are refused, sizes are checked before unpacking, failures are one sentence.

HDF5 follows links into any file that they name, and unpacks a chunk to any size. Therefore arrays must be the file's
own, their sizes are checked before reading, and compressed chunks are unpacked here, up to their declared size.
"""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import DatasetError
from velocirl.datasets.minari.layout import hdf5
from velocirl.engine.disk.allowance import AllowanceError, claim_unpacked
from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import open_plain

UNTOLD = 4096  # bytes that an array may declare beyond its stored size
DEFLATE, SHUFFLE, FLETCHER = 1, 2, 3  # the supported filters of HDF5
MOST_COLUMNS = 1000  # of an array whose columns are named
CHECKSUM_BYTES = 4  # of a Fletcher-32 checksum, stored after its data


class HDF5File:
    """Open HDF5 file with the arrays in its groups; `_taken` counts the bytes of everything read."""

    def __init__(self, root: Any, name: str, size: int) -> None:
        self.root = root
        self._name, self._size = name, size
        self._taken = 0

    def group(self, within: Any, name: str) -> Any:
        """Return a member group by name."""
        return _own(within, name, hdf5().Group)

    def has(self, within: Any, name: str) -> bool:
        """Return whether a group has a member; raise for a link."""
        with understood(self._name):
            return _link(within, name) is not None

    def array(self, within: Any, name: str) -> NDArray[Any]:
        """Read a member array by name."""
        with understood(self._name):
            found = _own(within, name, hdf5().Dataset)
            if found.dtype.kind not in "biuf" or found.dtype.itemsize > 8:
                raise DatasetError(f"{found.name} has values of the type {found.dtype}, and data are numbers")
            if not found.shape:
                raise DatasetError(f"{found.name} is a single value, and data have a row for each step")
            if found.external or found.is_virtual:
                raise DatasetError(f"{found.name} lies in other files, which are not read")
            filters = _filters(found)
            self._taken += _bytes_of(found) if filters else found.nbytes
            if not filters and found.nbytes > found.id.get_storage_size() + UNTOLD:
                raise DatasetError(f"{found.name} says that it has {found.nbytes} bytes, which are not there")
            try:
                claim_unpacked(self._taken, self._size, f"{found.name}, with what was read before,")
            except (ValueError, AllowanceError) as error:
                raise DatasetError(str(error)) from None
            return _unpacked(found, filters, self._size) if filters else found[()]

    def width(self, within: Any, name: str) -> int:
        """Return the number of values in a row of a member array."""
        with understood(self._name):
            found = _own(within, name, hdf5().Dataset)
            width = math.prod(found.shape[1:]) if found.shape and found.shape[0] else 0
            if width > MOST_COLUMNS:
                raise DatasetError(f"{found.name} has {width:,} values in a row; at most {MOST_COLUMNS:,} have names")
            return width


@contextlib.contextmanager
def opened(path: ConfinedPath) -> Iterator[HDF5File]:
    """Open an HDF5 file for reading."""
    try:
        file = open_plain(path)
    except (NotPlainFileError, IsADirectoryError):
        raise DatasetError(f"its {path.name} is not a plain file") from None
    with file:
        try:
            root = hdf5().File(file, "r")  # reads the open file: its path may lead elsewhere by now
        except Exception as error:  # noqa: BLE001 - whatever it makes of bytes that are no HDF5
            raise DatasetError(f"its {path.name} is damaged, or no HDF5 file ({_brief(error)})") from None
        try:
            yield HDF5File(root, path.name, os.fstat(file.fileno()).st_size)
        finally:
            with contextlib.suppress(Exception):  # of a damaged file, which was only read
                root.close()


@contextlib.contextmanager
def understood(name: str) -> Iterator[None]:
    """Convert any error that HDF5 raises to a `DatasetError`: HDF5 may raise anything for a damaged file."""
    try:
        yield
    except DatasetError:
        raise
    except Exception as error:  # noqa: BLE001 - KeyError, MemoryError, RuntimeError, SystemError, UnicodeError, ...
        raise DatasetError(f"its {name} is damaged, or means no good ({_brief(error)})") from None


def _own(within: Any, name: str, kind: type) -> Any:
    """Return a group's member by name; refuse links, which may lead into any other file."""
    with understood("file"):
        if _link(within, name) is None:
            raise DatasetError(f"{within.name.rstrip('/')}/{name} is missing")
        found = within[name]
        if not isinstance(found, kind):
            raise DatasetError(f"{found.name} is not a {kind.__name__.lower()}")
        return found


def _link(within: Any, name: str) -> Any:
    """Return a group's link to a name without following it, None if absent; raise unless it is a hard link."""
    link = within.get(name, getlink=True)
    if link is not None and not isinstance(link, hdf5().HardLink):
        raise DatasetError(f"{within.name.rstrip('/')}/{name} is a link, which may lead anywhere")
    return link


def _filters(found: Any) -> list[int]:
    """Return the filters of an array's chunks, in order."""
    plan = found.id.get_create_plist()
    filters = [plan.get_filter(k)[0] for k in range(plan.get_nfilters())]
    for code in filters:
        if code not in (DEFLATE, SHUFFLE, FLETCHER):
            raise DatasetError(f"{found.name} is compressed by the filter {code} of HDF5; velocirl reads gzip")
    return filters


def _bytes_of(found: Any) -> int:
    """Return the bytes of an array's chunks; the last chunks may extend beyond the array."""
    parts = (-(-size // chunk) * chunk for size, chunk in zip(found.shape, found.chunks, strict=True))
    return math.prod(parts) * found.dtype.itemsize


def _unpacked(found: Any, filters: list[int], size: int) -> NDArray[Any]:
    """Unpack a compressed array, chunk by chunk."""
    if not found.id.get_type().equal(hdf5().h5t.py_create(found.dtype, logical=True)):
        raise DatasetError(f"{found.name} is compressed, and not of a plain type of numbers")
    stored = np.dtype(np.uint8) if found.dtype == np.bool_ else found.dtype
    array, whole = np.empty(found.shape, found.dtype), math.prod(found.chunks) * stored.itemsize
    if found.id.get_num_chunks() != _bytes_of(found) // whole:
        raise DatasetError(f"{found.name} lacks some of its chunks")
    for place in found.iter_chunks():
        offset = tuple(one.start for one in place)
        if not 0 < found.id.get_chunk_info_by_coord(offset).size <= size:
            raise DatasetError(f"{found.name} has a chunk that the file does not have")
        mask, data = found.id.read_direct_chunk(offset)
        for position in reversed(range(len(filters))):
            if not mask >> position & 1:
                data = _undone(filters[position], data, whole, stored.itemsize)
        if len(data) != whole:
            raise DatasetError(f"{found.name} has a chunk of {len(data)} bytes, and not of {whole}")
        array[place] = np.frombuffer(data, stored).reshape(found.chunks)[tuple(slice(n.stop - n.start) for n in place)]
    return array


def _undone(code: int, data: bytes, whole: int, itemsize: int) -> bytes:
    """Undo one filter of a chunk, which has `whole` bytes before filtering."""
    if code == DEFLATE:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(data, whole + CHECKSUM_BYTES + 1)
        if not unpacking.eof:
            raise ValueError(f"a chunk has more than its {whole} bytes, or ends too early")
        return data
    if code == FLETCHER:
        return data[:-CHECKSUM_BYTES]
    return np.frombuffer(data, np.uint8).reshape(itemsize, -1).T.tobytes()


def _brief(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:120]
