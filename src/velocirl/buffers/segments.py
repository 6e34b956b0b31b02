"""Ring rows in append-only files, so that checkpoints of a large replay buffer are small and quick.

A save writes the rows added since the previous save, as segments: files of rows that never change again. A segment is
named after its row numbers and its checksum. The caller of a save keeps the list of segments; segments on no list can
be removed.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import without_gaps
from velocirl.buffers.replay import FILLED, TOTAL
from velocirl.buffers.replay_storage import HEADER_BYTES, header_bytes, size_of
from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import open_plain
from velocirl.engine.disk.writing import nameless_file, remove_unfinished, sync_directory, unfinished_file

FORMAT, VERSION = "velocirl segment", 1
BYTES = 2**24  # of a segment at most, so that old rows are removed in small pieces
MAPPED = 2**30  # bytes of rows from which an unnamed file holds them, as they may exceed memory
Place = str | Path | ConfinedPath  # type of the directory of segments
NAME = re.compile(r"\d{15}_\d{15}_[0-9a-f]{64}\.rows")
DIGEST = re.compile(r"[0-9a-f]{64}")
SURE = 2  # consecutive segments that match the ring: then all before them do


class DamagedSegmentError(ValueError):
    """A file of rows is missing or differs from what was saved; the message names it."""


class Rows(Protocol):
    """Filled part of a ring in index order: an array, or an object that returns arrays for slices."""

    @property
    def dtype(self) -> np.dtype[Any]: ...  # noqa: D102

    def __len__(self) -> int: ...

    def __getitem__(self, stretch: slice, /) -> NDArray[Any]: ...


class Segment(NamedTuple):
    """File of rows: the number of its first row, the number after its last row, and its checksum."""

    first: int
    stop: int
    digest: str

    @property
    def name(self) -> str:
        """Name of the segment's file."""
        return f"{self.first:015d}_{self.stop:015d}_{self.digest}.rows"


def save_rows(where: Place, rows: Rows, counts: NDArray[np.int64], known: Sequence[Segment] = ()) -> list[Segment]:
    """Write the rows that the `known` segments of an earlier save do not hold. Returns the segments of all rows.

    Known segments are trusted once the newest of them match the ring. If the ring has diverged since, or its newest
    rows were changed after that save, rows are written again from there on.
    """
    total, filled = int(counts[TOTAL]), int(counts[FILLED])
    oldest = total - filled
    directory = ConfinedPath.of(where)
    directory.make_directory()
    segments = [_kept(directory, rows, oldest, one) for one in _matching(rows, oldest, total, known)]
    begin = segments[-1].stop if segments else oldest
    most = max(BYTES // rows.dtype.itemsize, 1)
    segments += [_write(directory, rows, first, min(first + most, total)) for first in range(begin, total, most)]
    sync_directory(directory)  # the names too, before a checkpoint relies on them
    return segments


def load_rows(
    where: Place, dtype: np.dtype[Any], counts: NDArray[np.int64], segments: Sequence[Segment]
) -> NDArray[Any]:
    """Load the rows of a ring in index order. Every file is checked before memory is allocated for the rows."""
    total, filled = int(counts[TOTAL]), int(counts[FILLED])
    oldest = total - filled
    _check_list(segments, oldest, total)
    directory = ConfinedPath.of(where)
    files = [_map(directory, dtype, one) for one in segments]
    rows = _room(directory, filled, dtype)
    for one, file in zip(segments, files, strict=True):
        for place, stretch in _stretches(max(one.first, oldest), one.stop, filled):
            rows[place : place + len(stretch)] = file[stretch.start - one.first : stretch.stop - one.first]
    return rows


def remove_others(where: Place, needed: Iterable[Segment]) -> None:
    """Remove segments that are not needed, and unfinished files of killed processes; other files stay."""
    directory, names = ConfinedPath.of(where), {one.name for one in needed}
    for name in directory.names():
        if NAME.fullmatch(name) and name not in names:
            (directory / name).remove()
    remove_unfinished(directory)


def segments_from(listed: Any) -> list[Segment]:
    """Return the segments that a document lists as [first, stop, digest]. Raises ValueError for anything else."""
    try:
        segments = [Segment(first, stop, digest) for first, stop, digest in listed]
        sound = all(
            type(one.first) is type(one.stop) is int
            and 0 <= one.first < one.stop < 10**15
            and DIGEST.fullmatch(one.digest)
            for one in segments
        )
    except (TypeError, ValueError):
        sound, segments = False, []
    if not sound:
        raise ValueError("its list of segments is not one that velocirl writes")
    return segments


def _matching(rows: Rows, oldest: int, total: int, known: Sequence[Segment]) -> list[Segment]:
    """Return the known segments that the ring still holds, oldest first."""
    segments = [one for one in known if oldest < one.stop <= total]
    sure = 0
    for index in reversed(range(len(segments))):
        one = segments[index]
        if one.first < oldest and sure == 0:  # its first rows are gone, and no later segment has confirmed the others
            return []
        if one.first < oldest or sure >= SURE:
            break
        if _digest(rows, one.first, one.stop) == one.digest:
            sure += 1
        else:
            segments, sure = segments[:index], 0
    return segments


def _kept(directory: ConfinedPath, rows: Rows, oldest: int, one: Segment) -> Segment:
    """Return a segment whose file exists; a segment lost since is written again."""
    path = directory / one.name
    status = path.status() if path.is_file() else None
    if status is not None and status.st_size == size_of(one.stop - one.first, rows.dtype):
        return one
    return _write(directory, rows, max(one.first, oldest), one.stop)


def _digest(rows: Rows, first: int, stop: int) -> str:
    digest = hashlib.sha256(_header(rows.dtype, first, stop))
    for data in _data(rows, first, stop):
        digest.update(data)
    return digest.hexdigest()


def _write(directory: ConfinedPath, rows: Rows, first: int, stop: int) -> Segment:
    """Write one segment under a temporary name, then rename it, so that it is never incomplete."""
    header = _header(rows.dtype, first, stop)
    digest = hashlib.sha256(header)
    try:
        with directory.opened_directory() as within, unfinished_file(within) as (name, handle):
            with open(handle, "wb", closefd=False) as file:
                file.write(header)
                for data in _data(rows, first, stop):
                    digest.update(data)
                    file.write(data)
            os.fsync(handle)
            one = Segment(first, stop, digest.hexdigest())
            os.replace(name, one.name, src_dir_fd=within, dst_dir_fd=within)
    except NotPlainFileError:
        raise
    except OSError as error:
        reason = f"no segment could be written ({error.strerror}); earlier saves are untouched"
        raise OSError(error.errno, reason, str(directory)) from error
    return one


def _map(directory: ConfinedPath, dtype: np.dtype[Any], one: Segment) -> NDArray[Any]:
    """Map the rows of a segment, after checking its checksum."""
    path, count = directory / one.name, one.stop - one.first
    try:
        file = open_plain(path)
    except FileNotFoundError:
        needs = f"rows {one.first} to {one.stop - 1} of the memory"
        raise DamagedSegmentError(f"{path} is missing; the checkpoint needs its {needs}") from None
    except (NotPlainFileError, IsADirectoryError) as error:
        raise DamagedSegmentError(f"{error.filename} {error.strerror}") from None
    with file:
        if file.read(HEADER_BYTES) != _header(dtype, one.first, one.stop):
            raise DamagedSegmentError(f"{path} is damaged, or has rows of another kind than {dtype}")
        if os.fstat(file.fileno()).st_size != size_of(count, dtype):
            raise DamagedSegmentError(f"{path} is damaged: it is not as long as its {count} rows")
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != one.digest:
            raise DamagedSegmentError(f"{path} is damaged: its checksum does not match its contents")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype, count, HEADER_BYTES)


def _room(directory: ConfinedPath, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate rows to fill: in memory or, if large, in an unnamed file that disappears after its last use."""
    size = count * dtype.itemsize
    if size < MAPPED:
        return np.zeros(count, dtype)
    with nameless_file(directory) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype, count)


def _header(dtype: np.dtype[Any], first: int, stop: int) -> bytes:
    return header_bytes(FORMAT, VERSION, dtype, first=first, count=stop - first)


def _data(rows: Rows, first: int, stop: int) -> Iterator[memoryview]:
    """Iterate over the bytes of rows number `first` up to `stop`."""
    for place, stretch in _stretches(first, stop, len(rows)):
        yield without_gaps(rows[place : place + len(stretch)]).view(np.uint8).data


def _stretches(first: int, stop: int, filled: int) -> Iterator[tuple[int, range]]:
    """Iterate over contiguous ranges of the rows `first` up to `stop`, each with its index in the ring.

    Until a ring is full, the index of a row is its number; then as many rows are filled as there are indices.
    """
    while first < stop:
        place = first % filled
        end = min(stop, first + filled - place)
        yield place, range(first, end)
        first = end


def _check_list(segments: Sequence[Segment], oldest: int, total: int) -> None:
    """Raise DamagedSegmentError unless the segments are exactly the rows that the ring needs."""
    bounds = [oldest, *(one.stop for one in segments)]
    starts = [max(one.first, oldest) for one in segments]
    if starts != bounds[:-1] or bounds[-1] != total:
        raise DamagedSegmentError(f"the segments are not rows {oldest} to {total - 1} one after the other")
