"""Arrays and a JSON document in one safetensors file: written whole or not at all, checked before it is believed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "velocirl"
VERSION = "1"
RECORDS = "__records__"  # the key of the document that says how structured arrays were taken apart
UNFINISHED = ".unfinished"
MOST_HEADER_BYTES = 16 * 2**20
MOST_DIMENSIONS = 32
DTYPES = {
    "BOOL": np.dtype("?"),
    **{f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "UI" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class DamagedStateError(ValueError):
    """A file that is not what `write_state` wrote; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class State:
    """What a state file holds."""

    arrays: dict[str, NDArray[Any]]
    document: dict[str, Any]


def write_state(path: str | Path, arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> None:
    """Write arrays (plain or structured) and a document of strict JSON to one file that any safetensors reader opens.

    The file is on the disk when this returns; if it cannot be written, what lay under this name stays as it was.
    """
    write_whole(path, state_parts(arrays, document))


def state_parts(arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> list[bytes | memoryview]:
    """The same as bytes, one part after the other."""
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
    # The widest come first, so that every tensor begins where its type may begin.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))
    header = _header(ordered, text, _digest(text, tensors))
    if len(header) > MOST_HEADER_BYTES:
        raise ValueError(
            f"names and document take {len(header)} bytes of {MOST_HEADER_BYTES}: store large values as arrays"
        )
    return [len(header).to_bytes(8, "little"), header, *map(_bytes, ordered.values())]


def read_state(path: str | Path) -> State:
    """Read a file that `write_state` wrote. Anything else is refused, before memory is taken for its arrays."""
    with Path(path).open("rb") as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size)
        except (AttributeError, LookupError, RecursionError, TypeError) as error:
            raise DamagedStateError(f"{path} is damaged: its header is not one that velocirl writes") from error
        except ValueError as error:
            raise DamagedStateError(f"{path} is damaged: {error}") from error


def state_from(data: bytes) -> State:
    """The state of which `state_parts` made these bytes."""
    return _read(BytesIO(data), len(data))


def strict_json(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    """A document as JSON text that every reader understands alike; what JSON cannot say is refused by its place."""
    document = dict(document)
    _check_plain(document, "document")
    return json.dumps(document, allow_nan=False, indent=indent, separators=None if indent else (",", ":"))


def parse_json(text: str | bytes) -> Any:
    """The value of strict JSON: no NaN, and no key twice in one object."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)


def write_whole(path: str | Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a private file under another name, then give it its own: a reader finds the old file or the new one."""
    path = Path(path).resolve()  # of a link, the file it points to
    unfinished = None
    try:
        handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", suffix=UNFINISHED, dir=path.parent)
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            with contextlib.suppress(OSError):  # where there are no locks, nothing is taken for left over either
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            Path(unfinished).replace(path)
            unfinished = None
    except OSError as error:
        reason = f"could not be written ({error.strerror}); what was there before is untouched"
        raise OSError(error.errno, reason, str(path)) from error
    finally:
        if unfinished is not None:
            Path(unfinished).unlink(missing_ok=True)
    _sync_directory(path.parent)


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process left half-written; a file that somebody is writing now is locked, and stays."""
    for path in directory.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not sync directories has nothing to wait for
            raise
    finally:
        os.close(handle)


def _read(file: BufferedReader | BytesIO, size: int) -> State:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ValueError(f"it is cut short, or no safetensors file (header of {length} bytes in a file of {size})")
    header = file.read(length)
    entries = parse_json(header)
    metadata = entries.pop("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise ValueError("it is a safetensors file, but not one that velocirl wrote")
    if metadata["version"] != VERSION:
        raise ValueError(f"its format has version {metadata['version']}; this velocirl reads version {VERSION}")
    end = 0
    for name, entry in entries.items():
        end = _check_entry(name, entry, begin=end)
    if size != 8 + length + end:
        raise ValueError(f"its arrays take {end} bytes, but {size - 8 - length} are there")
    tensors = {}
    for name, entry in entries.items():
        tensors[name] = np.empty(entry["shape"], DTYPES[entry["dtype"]])
        if file.readinto(_bytes(tensors[name])) != tensors[name].nbytes:
            raise ValueError(f"it ends within {name!r}")
    text = metadata["document"]
    # Written anew, the header must come out the same, checksum and all: so no bit of it can change unnoticed.
    if _header(tensors, text, _digest(text, tensors)) != header:
        raise ValueError("its checksum does not match its contents")
    for name, tensor in tensors.items():
        if tensor.dtype == np.bool_ and np.any(tensor.view(np.uint8) > 1):
            raise ValueError(f"{name!r} has values that are neither true nor false")
    document = parse_json(text)
    records = document.pop(RECORDS, {})
    arrays = {name: _put_together(name, fields, tensors) for name, fields in records.items()}
    return State(tensors | arrays, document)


def _check_entry(name: str, entry: Any, begin: int) -> int:
    """Where the tensor of a header's entry ends, if it is one that begins at `begin` and has the size it says."""
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


def _header(tensors: Mapping[str, NDArray[Any]], text: str, digest: str) -> bytes:
    entries: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "document": text, "sha256": digest}
    }
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": tensor.shape, "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)


def _digest(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(text).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, NAMES[tensor.dtype], tensor.shape]).encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: NDArray[Any]) -> memoryview:
    return tensor.reshape(-1).view(np.uint8).data


def _take_apart(name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A plain array as it is, a structured one as one tensor for each field, without the padding between them."""
    if array.dtype.names is None:
        if name in ("", "__metadata__") or array.dtype not in NAMES or array.ndim > MOST_DIMENSIONS:
            kinds = ", ".join(str(dtype) for dtype in NAMES)
            raise ValueError(f"{name!r}, {array.dtype} {array.shape}, cannot be stored; the types are {kinds}")
        yield name, np.asarray(array, order="C")
        return
    for field in array.dtype.names:
        yield from _take_apart(f"{name}/{field}", array[field])


def _describe(name: str, dtype: np.dtype) -> dict[str, Any]:
    """The fields of a record type in JSON, from which `_record_type` makes the same type again."""
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
    """A structured array from the tensors of its fields, which it replaces."""
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


def _check_plain(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}; keys must be strings")
            _check_plain(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_plain(inner, f"{place}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}, which JSON cannot say; use None or a string")
    elif value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"{place} is a {type(value).__name__}; use numbers, strings, lists and dictionaries")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result
