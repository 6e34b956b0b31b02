"""Dataset file: columns in safetensors' layout, with a checksum for each chunk of their bytes.

Chunks are checked one by one, so that files larger than memory can be read, written and checked. The header has the
checksums of all chunks and its own checksum, which therefore covers the whole file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.info import DatasetInfo
from velocirl.engine.disk.files import NotPlainFileError, open_plain, parse_json
from velocirl.engine.disk.safetensors_layout import DTYPES, Header, header_text, read_header, tensor_bytes, widest_first
from velocirl.engine.disk.writing import strict_json, written_whole
from velocirl.engine.targets.cores import available_cores

FORMAT, VERSION = "velocirl data", "1"
SUFFIX = ".vds"
CHUNK = 2**24  # bytes
NOTHING = "0" * 64  # placeholder of a checksum


class Stored(NamedTuple):
    """Column to write: its type and shape, and a function that yields its bytes in pieces."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[memoryview]]

    @classmethod
    def of(cls, column: NDArray[Any]) -> Stored:
        """Return the stored column of an array."""
        rows = max(CHUNK // max(column.dtype.itemsize * prod(column.shape[1:]), 1), 1)

        def pieces() -> Iterator[memoryview]:
            for first in range(0, len(column), rows):
                yield tensor_bytes(np.ascontiguousarray(column[first : first + rows]))

        return cls(column.dtype, column.shape, pieces)


def write_columns(path: Path, info: DatasetInfo, columns: Mapping[str, Stored], *, overwrite: bool = False) -> str:
    """Write a dataset to a file, whole or not at all. Returns its checksum."""
    require_place(path, overwrite=overwrite)
    header, digests = _Header(info, columns), _Digests()
    with written_whole(path) as file:
        file.write(header.text(NOTHING * header.chunks, NOTHING))  # of the final length
        for piece in header.pieces():
            digests.update(piece)
            file.write(piece)
        file.seek(0)
        text, checksum = header.finished(digests.chunks())
        file.write(text)
    return checksum


def require_place(path: Path, *, overwrite: bool = False) -> None:
    """Raise if the file cannot be created or exists already, before its content is computed."""
    if not overwrite and (path.exists() or path.is_symlink()):
        raise FileExistsError(f"{path} exists: choose another path, or say overwrite=True (--overwrite)")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no directory {path.parent}; make it first")


def checksum_of(info: DatasetInfo, columns: Mapping[str, Stored]) -> str:
    """Return the checksum that a dataset has in its file."""
    header, digests = _Header(info, columns), _Digests()
    for piece in header.pieces():
        digests.update(piece)
    return header.finished(digests.chunks())[1]


def read_columns(path: Path, *, check: bool) -> tuple[DatasetInfo, dict[str, NDArray[Any]], str]:
    """Read a dataset file. Returns its info, mapped columns and checksum, or raises DatasetError."""
    try:
        file = open_plain(path)
    except (NotPlainFileError, IsADirectoryError):
        raise DatasetError(f"{path} is not a plain file") from None
    with file:
        try:
            header = read_header(file, FORMAT, VERSION)
            info = _checked(header)
            if check:
                _check_chunks(file.fileno(), header)
            return info, _mapped(file.fileno(), header), header.metadata["sha256"]
        except DatasetError:
            raise
        except (AttributeError, LookupError, RecursionError, TypeError) as error:
            raise DatasetError(f"{path} is damaged: its header is not one that velocirl writes") from error
        except ValueError as error:
            raise DatasetError(f"{path} is no data set, or is damaged: {error}") from error


class _Header:
    """Header of the file, before the columns."""

    def __init__(self, info: DatasetInfo, columns: Mapping[str, Stored]) -> None:
        self._columns = {name: columns[name] for name in widest_first(columns)}
        self._tensors = {name: (one.dtype, one.shape) for name, one in self._columns.items()}
        self._document = strict_json(info.document())
        self.chunks = -(-sum(prod(shape) * dtype.itemsize for dtype, shape in self._tensors.values()) // CHUNK)

    def pieces(self) -> Iterator[memoryview]:
        return (piece for one in self._columns.values() for piece in one.pieces())

    def text(self, chunks: str, checksum: str) -> bytes:
        found = header_text(self._tensors, _metadata(self._document, chunks, checksum))
        return len(found).to_bytes(8, "little") + found

    def finished(self, chunks: str) -> tuple[bytes, str]:
        checksum = hashlib.sha256(self.text(chunks, NOTHING)).hexdigest()
        return self.text(chunks, checksum), checksum


class _Digests:
    """Checksums of bytes that arrive in pieces, one per chunk."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._digest, self._room = hashlib.sha256(), CHUNK

    def update(self, piece: memoryview) -> None:
        while piece:
            part, piece = piece[: self._room], piece[self._room :]
            self._digest.update(part)
            self._room -= len(part)
            if self._room == 0:
                self._close()

    def chunks(self) -> str:
        if self._room < CHUNK:
            self._close()
        return "".join(self._done)

    def _close(self) -> None:
        self._done.append(self._digest.hexdigest())
        self._digest, self._room = hashlib.sha256(), CHUNK


def _metadata(document: str, chunks: str, checksum: str) -> dict[str, str]:
    return {"format": FORMAT, "version": VERSION, "document": document, "chunks": chunks, "sha256": checksum}


def _checked(header: Header) -> DatasetInfo:
    """Return the info of a header, which must match velocirl's output exactly, with its own checksum."""
    tensors = {name: (DTYPES[one["dtype"]], tuple(one["shape"])) for name, one in header.entries.items()}
    document, chunks, checksum = (header.metadata[name] for name in ("document", "chunks", "sha256"))
    if header_text(tensors, _metadata(document, chunks, checksum)) != header.text:
        raise ValueError("its header is not one that velocirl writes")
    blank = header_text(tensors, _metadata(document, chunks, NOTHING))
    if hashlib.sha256(len(blank).to_bytes(8, "little") + blank).hexdigest() != checksum:
        raise ValueError("the checksum of its header does not match")
    if len(chunks) != 64 * -(-header.size // CHUNK):
        raise ValueError("it does not have a checksum for each chunk")
    return DatasetInfo.from_document(parse_json(document))


def _check_chunks(handle: int, header: Header) -> None:
    """Compare every chunk with its checksum, in threads: hashing releases the interpreter's lock."""
    chunks = header.metadata["chunks"]

    def sound(number: int) -> bool:
        begin = number * CHUNK
        data = os.pread(handle, min(CHUNK, header.size - begin), header.begin + begin)
        return hashlib.sha256(data).hexdigest() == chunks[64 * number : 64 * number + 64]

    count = len(chunks) // 64
    threads = ThreadPoolExecutor(min(max(count, 1), available_cores()))
    try:
        for number, whole in enumerate(threads.map(sound, range(count))):
            if not whole:
                first = header.begin + number * CHUNK
                last = min(first + CHUNK, header.begin + header.size) - 1
                raise ValueError(f"the checksum of its bytes {first} to {last} does not match")
    finally:
        threads.shutdown(cancel_futures=True)  # after a mismatch, the other chunks do not matter


def _mapped(handle: int, header: Header) -> dict[str, NDArray[Any]]:
    data = np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)
    found = {}
    for name, entry in header.entries.items():
        begin, end = (header.begin + place for place in entry["data_offsets"])
        found[name] = data[begin:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found
