"""Files from untrusted sources: opened first, then checked through the open descriptor, then read.

A name that was checked may refer to another file by the time it is opened. A file opened without precautions may be a
pipe that never answers.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import warnings
from io import BufferedReader
from pathlib import Path
from typing import Any

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError, refused

MOST_BYTES = 64 * 2**20  # of a document; ours have a few thousand
MOST_DEPTH = 32  # levels of nested lists and objects; far more than our documents have


class UnsafePathError(PermissionError):
    """File or directory through which others could inject code; the message names the remedy."""


def open_plain(path: str | Path | ConfinedPath) -> BufferedReader:
    """Open a plain file for reading. Raises for anything else: a pipe could block forever, a device never end."""
    return os.fdopen(plain_handle(path, os.O_RDONLY), "rb")


def read_plain(path: str | Path | ConfinedPath, most: int = MOST_BYTES) -> bytes:
    """Return the content of a plain file of at most `most` bytes."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path} has more than {most} bytes")
        return file.read()


def plain_handle(path: str | Path | ConfinedPath, flags: int, directory: int | None = None) -> int:
    """Open a plain file with flags of `os.open` and return its descriptor; a file created by them is private.

    With the descriptor of its directory, the file is opened there, wherever the path leads by now. A confined path is
    opened by the descriptors of the directories on the way, without following links.
    """
    if isinstance(path, ConfinedPath):
        with path.parent.opened_directory() as within:
            try:
                return plain_handle(path.path, flags | os.O_NOFOLLOW, within)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK):
                    raise refused(path, path.name, within) from None
                raise
    name = path if directory is None else Path(path).name
    try:
        # Without blocking, so that a pipe answers at once.
        handle = os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
            raise _not_plain(path) from None
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise _not_plain(path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_own(path: str | Path, directory: int | None = None) -> BufferedReader:
    """Open a plain file of this user for reading, which nobody else can have written.

    A file of the user that others could write is removed, with a warning, and counts as missing, since its content
    cannot be trusted.
    """
    try:
        handle = plain_handle(path, os.O_RDONLY | os.O_NOFOLLOW, directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise UnsafePathError(f"{path} is a symbolic link, and what it says is trusted: remove it") from None
        raise
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise UnsafePathError(
                f"{path} belongs to user {status.st_uid}, not to you, and what it says is trusted: remove it,"
                " or set VELOCIRL_HOME to a directory of your own"
            )
        if status.st_mode & 0o022:
            os.unlink(path if directory is None else Path(path).name, dir_fd=directory)
            warnings.warn(f"{path} could be written by others, so it is removed and begun anew", stacklevel=2)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def parse_json(text: str | bytes) -> Any:
    """Parse strict JSON: raises ValueError for NaN, duplicate keys, and nesting beyond MOST_DEPTH levels."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels") from None
    level = _nested([value])
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _nested(outer.values() if isinstance(outer, dict) else outer)]
    if level:
        raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels")
    return value


def _nested(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"a key stands twice in one object: {twice[:40]!r}")
    return result


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _not_plain(path: str | Path) -> NotPlainFileError:
    return NotPlainFileError(errno.EINVAL, "is not a plain file", str(path))
