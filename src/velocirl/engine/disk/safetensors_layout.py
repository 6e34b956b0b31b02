"""Layout of safetensors files: a header of strict JSON, then the bytes of the tensors in sequence."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from io import BufferedIOBase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.files import parse_json

METADATA = "__metadata__"
MOST_HEADER_BYTES = 16 * 2**20
MOST_DIMENSIONS = 32
DTYPES = {
    "BOOL": np.dtype("?"),
    **{f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "UI" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Header(NamedTuple):
    """Header of a safetensors file."""

    entries: dict[str, Any]  # dtype, shape and data_offsets by name, checked to be contiguous
    metadata: dict[str, Any]
    text: bytes
    begin: int  # offset of the tensors in the file
    size: int  # bytes of the tensors


def read_header(file: BufferedIOBase, kind: str, version: str) -> Header:
    """Read the header of a velocirl file of a kind (`format` in its metadata); raises ValueError if it is invalid."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ValueError(f"it is cut short, or no safetensors file (header of {length} bytes in a file of {size})")
    text = file.read(length)
    entries = parse_json(text)
    metadata = entries.pop(METADATA, {})
    found = metadata.get("format")
    if found != kind and str(found).startswith("velocirl"):
        raise ValueError(f"it is a file of the format {found[:40]!r}, and not of {kind!r}")
    if found != kind:
        raise ValueError("it is a safetensors file, but not one that velocirl wrote")
    if metadata["version"] != version:
        raise ValueError(f"its format has version {metadata['version']}; this velocirl reads version {version}")
    end = 0
    for name, entry in entries.items():
        end = _check_entry(name, entry, begin=end)
    if size != 8 + length + end:
        raise ValueError(f"its arrays take {end} bytes, but {size - 8 - length} are there")
    return Header(entries, metadata, text, 8 + length, end)


def header_text(tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header for tensors of these types and shapes, in this order; in a file its length precedes it."""
    entries: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MOST_HEADER_BYTES:
        raise ValueError(
            f"names and document take {len(header)} bytes of {MOST_HEADER_BYTES}: store large values as arrays"
        )
    return header


def widest_first(tensors: Mapping[str, Any]) -> list[str]:
    """Return names in an order in which every tensor is aligned to its type."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def tensor_bytes(tensor: NDArray[Any]) -> memoryview:
    """Return the bytes of a contiguous array."""
    return tensor.reshape(-1).view(np.uint8).data


def _check_entry(name: str, entry: Any, begin: int) -> int:
    """Return the end offset of a header entry's tensor; raises ValueError for a wrong start or size."""
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in DTYPES:
        raise ValueError(f"{name!r} has the unknown type {dtype!r}")
    sizes = [*shape, *offsets]
    if len(shape) > MOST_DIMENSIONS or not all(type(number) is int and 0 <= number < 2**48 for number in sizes):
        raise ValueError(f"{name!r} has an impossible shape or place")
    if math.prod(max(1, number) for number in shape) >= 2**48:
        raise ValueError(f"{name!r} is impossibly large")
    end = begin + math.prod(shape) * DTYPES[dtype].itemsize
    if offsets != [begin, end]:
        raise ValueError(f"{name!r} should lie at {[begin, end]}, not at {offsets}")
    return end
