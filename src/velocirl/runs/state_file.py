"""Arrays and a JSON document in one safetensors file: written atomically, validated when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import open_plain, parse_json
from velocirl.engine.disk.safetensors_layout import (
    DTYPES,
    METADATA,
    MOST_DIMENSIONS,
    NAMES,
    header_text,
    read_header,
    tensor_bytes,
    widest_first,
)
from velocirl.engine.disk.writing import strict_json, write_whole

FORMAT = "velocirl"
VERSION = "1"
RECORDS = "__records__"  # key of the document that describes how structured arrays were split


class DamagedStateError(ValueError):
    """Error for a file that `write_state` did not write; the message names the file and the fault."""


@dataclass(frozen=True)
class State:
    """Contents of a state file."""

    arrays: dict[str, NDArray[Any]]
    document: dict[str, Any]


def write_state(
    path: str | Path | ConfinedPath, arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]
) -> None:
    """Write arrays (plain or structured) and a strict JSON document to one file that any safetensors reader opens.

    The file is on disk when this returns. If writing fails, an earlier file of this name stays as it was.
    """
    write_whole(path, state_parts(arrays, document))


def state_parts(arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return the contents of a state file as a list of byte chunks."""
    if RECORDS in document:
        raise ValueError(f"the key {RECORDS!r} of a document is reserved")
    tensors: dict[str, NDArray[Any]] = {}
    records = {}
    for name, array in arrays.items():
        array = np.asarray(array, order="C")
        for part, tensor in _take_apart(name, array):
            if part in tensors:
                raise ValueError(f"two arrays would be stored as {part!r}; give one of them another name")
            tensors[part] = tensor
        if array.dtype.names is not None:
            records[name] = _describe(name, array.dtype)
    text = strict_json({**document, RECORDS: records} if records else document)
    ordered = {name: tensors[name] for name in widest_first(tensors)}
    header = _header(ordered, text, _digest(text, tensors))
    return [len(header).to_bytes(8, "little"), header, *map(tensor_bytes, ordered.values())]


def read_state(path: str | Path | ConfinedPath) -> State:
    """Read a file that `write_state` wrote. Anything else raises before memory is allocated for its arrays."""
    try:
        file = open_plain(path)
    except (NotPlainFileError, IsADirectoryError) as error:
        raise DamagedStateError(f"{path} {error.strerror}") from error
    with file:
        try:
            return _read(file)
        except (AttributeError, LookupError, RecursionError, TypeError) as error:
            raise DamagedStateError(f"{path} is damaged: its header is not one that velocirl writes") from error
        except ValueError as error:
            raise DamagedStateError(f"{path} is damaged: {error}") from error


def state_from(data: bytes) -> State:
    """Decode a state from the joined bytes of `state_parts`."""
    return _read(BytesIO(data))


def _read(file: BufferedIOBase) -> State:
    header = read_header(file, FORMAT, VERSION)
    tensors = {}
    for name, entry in header.entries.items():
        tensors[name] = np.empty(entry["shape"], DTYPES[entry["dtype"]])
        if file.readinto(tensor_bytes(tensors[name])) != tensors[name].nbytes:
            raise ValueError(f"it ends within {name!r}")
    text = header.metadata["document"]
    # Written again, the header must come out the same, checksum included: so every changed bit is detected.
    if _header(tensors, text, _digest(text, tensors)) != header.text:
        raise ValueError("its checksum does not match its contents")
    for name, tensor in tensors.items():
        if tensor.dtype == np.bool_ and np.any(tensor.view(np.uint8) > 1):
            raise ValueError(f"{name!r} has values that are neither true nor false")
    document = parse_json(text)
    records = document.pop(RECORDS, {})
    arrays = {name: _put_together(name, fields, tensors) for name, fields in records.items()}
    return State(tensors | arrays, document)


def _header(tensors: Mapping[str, NDArray[Any]], text: str, digest: str) -> bytes:
    metadata = {"format": FORMAT, "version": VERSION, "document": text, "sha256": digest}
    return header_text({name: (one.dtype, one.shape) for name, one in tensors.items()}, metadata)


def _digest(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(text).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, NAMES[tensor.dtype], tensor.shape]).encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def _take_apart(name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield a plain array as it is, a structured one as one tensor per field, without padding."""
    if array.dtype.names is None:
        if name in ("", METADATA) or array.dtype not in NAMES or array.ndim > MOST_DIMENSIONS:
            kinds = ", ".join(str(dtype) for dtype in NAMES)
            raise ValueError(f"{name!r}, {array.dtype} {array.shape}, cannot be stored; the types are {kinds}")
        yield name, np.asarray(array, order="C")
        return
    for field in array.dtype.names:
        yield from _take_apart(f"{name}/{field}", array[field])


def _describe(name: str, dtype: np.dtype) -> dict[str, Any]:
    """Describe the fields of a record type in JSON, from which `_record_type` rebuilds the type."""
    fields = []
    for field in dtype.names or ():
        base, shape = dtype[field].base, dtype[field].shape
        inner = NAMES[base] if base.names is None else _describe(f"{name}/{field}", base)
        fields.append([field, inner, list(shape)])
    description = {"aligned": bool(dtype.isalignedstruct), "fields": fields}
    if not fields or _record_type(description) != dtype:
        raise ValueError(f"{name!r} has gaps, titles or reordered fields: store a copy whose fields lie in plain order")
    return description


def _record_type(description: Mapping[str, Any]) -> np.dtype:
    fields: list[tuple[Any, ...]] = []
    for field, inner, shape in description["fields"]:
        base = _record_type(inner) if isinstance(inner, dict) else DTYPES[inner]
        fields.append((field, base, tuple(shape)))
    return np.dtype(fields, align=description["aligned"])


def _put_together(name: str, description: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Build a structured array from the tensors of its fields, which are removed from `tensors`."""
    columns = {}
    for field, inner, shape in description["fields"]:
        part = f"{name}/{field}"
        column = _put_together(part, inner, tensors) if isinstance(inner, dict) else tensors.pop(part)
        own = column.ndim - len(shape)
        if own < 0 or column.shape[own:] != tuple(shape) or (column.dtype in NAMES and NAMES[column.dtype] != inner):
            raise ValueError(f"{part!r} is not what its record says")
        columns[field] = column, column.shape[:own]
    shapes = {shape for _, shape in columns.values()}
    if len(shapes) != 1:
        raise ValueError(f"the fields of {name!r} differ in length")
    array = np.zeros(shapes.pop(), _record_type(description))
    for field, (column, _) in columns.items():
        array[field] = column
    return array
