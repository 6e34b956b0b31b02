"""Storage of a ring's rows: in memory, or in a mapped file that may be larger than memory.

A mapped file is working space: it has one owner at a time, and its header describes only the type of its rows. A
checkpoint describes their contents.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.allowance import claim
from velocirl.engine.disk.files import plain_handle

HEADER_BYTES = 4096  # so that rows begin at a page boundary
FORMAT, VERSION = "velocirl ring", 1


def allocate_rows(capacity: int, dtype: np.dtype[Any], path: Path | None) -> NDArray[Any]:
    """Return rows (capacity,): zeros in memory, or those of a file, which is created unless it exists."""
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"rows must be records of numbers, not {dtype}")
    if path is None:
        claim(capacity * dtype.itemsize, f"a memory of {capacity:,} transitions (buffer_size)")
        return np.zeros(capacity, dtype)
    header = header_bytes(FORMAT, VERSION, dtype, capacity=capacity)
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be made: there is no directory {path.parent}; make it, or choose another path")
    handle = plain_handle(path, os.O_RDWR | os.O_CREAT)
    try:
        _claim(handle, path)
        size = os.fstat(handle).st_size
        if size == 0:
            _create(handle, header, size_of(capacity, dtype), path)
        elif os.pread(handle, HEADER_BYTES, 0) != header:
            raise ValueError(f"{path} is not the file of a buffer of {capacity} such transitions; choose another path")
        elif size != size_of(capacity, dtype):
            raise ValueError(f"{path} is damaged: it has {size} bytes; remove it, and it is made anew")
        # The mapping has its own descriptor, so the lock lasts as long as the rows are in use.
        return np.frombuffer(mmap.mmap(handle, size_of(capacity, dtype)), dtype, capacity, HEADER_BYTES)
    finally:
        os.close(handle)


def size_of(rows: int, dtype: np.dtype[Any]) -> int:
    """Return the size of a file of rows, in bytes."""
    return HEADER_BYTES + rows * dtype.itemsize


def header_bytes(kind: str, version: int, dtype: np.dtype[Any], **details: Any) -> bytes:
    """Return the header of a file of rows: one line of JSON, padded with spaces."""
    document = {"format": kind, "version": version, "rows": describe(dtype), **details}
    text = json.dumps(document, separators=(",", ":")).encode()
    if len(text) >= HEADER_BYTES:
        raise ValueError(f"the record type has too many fields for a file: {dtype}")
    return text.ljust(HEADER_BYTES - 1) + b"\n"


def describe(dtype: np.dtype[Any]) -> list[Any]:
    """Return a record type as JSON: name, type, shape and offset of each field, and the total size."""
    fields = dtype.fields or {}
    parts = [[name, field[0].base.str, list(field[0].shape), field[1]] for name, field in fields.items()]
    return [*parts, dtype.itemsize]


def _claim(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(f"{path} is in use by another buffer; give each buffer a path of its own") from error


def _create(handle: int, header: bytes, size: int, path: Path) -> None:
    try:
        os.ftruncate(handle, size)
        if hasattr(os, "posix_fallocate"):
            # Reserve all space now: if the disk were full later, a write to memory would kill the process.
            os.posix_fallocate(handle, 0, size)
        os.pwrite(handle, header, 0)
    except OSError as error:
        os.ftruncate(handle, 0)
        raise OSError(error.errno, f"could not be given {size} bytes ({error.strerror})", str(path)) from error
