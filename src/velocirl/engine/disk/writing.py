"""Files that are written whole or not at all, and documents that every reader understands alike."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Any

UNFINISHED = ".unfinished"


def strict_json(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    """A document as JSON text that every reader understands alike; what JSON cannot say is refused by its place."""
    document = dict(document)
    _check_plain(document, "document")
    return json.dumps(document, allow_nan=False, indent=indent, separators=None if indent else (",", ":"))


def write_whole(path: str | Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a private file under another name, then give it its own: a reader finds the old file or the new one."""
    with written_whole(path) as file:
        file.writelines(parts)


@contextlib.contextmanager
def written_whole(path: str | Path) -> Iterator[BufferedWriter]:
    """A file to write, which has its name only once it is complete and on the disk; else nothing is left of it."""
    path = Path(path).resolve()  # of a link, the file it points to
    unfinished = None
    try:
        handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", suffix=UNFINISHED, dir=path.parent)
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            with contextlib.suppress(OSError):  # where there are no locks, nothing is taken for left over either
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
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
    sync_directory(path.parent)


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process left half-written; a file that somebody is writing now is locked, and stays."""
    for path in directory.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not sync directories has nothing to wait for
            raise
    finally:
        os.close(handle)


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
