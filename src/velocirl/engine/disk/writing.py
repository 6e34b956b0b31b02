"""Atomic file writing, and strict JSON documents."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedRandom, BufferedWriter
from pathlib import Path
from typing import Any

from velocirl.engine.disk.confined import BELOW, ConfinedPath, NotPlainFileError

UNFINISHED = ".unfinished"
PRIVATE, SHARED = 0o600, 0o666  # modes of new files, before the umask
TOKEN = 8  # characters between the file's name and the ending


def strict_json(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Format a document as strict JSON text; raises, with the location, for values that JSON cannot represent."""
    document = dict(document)
    _check_plain(document, "document")
    return json.dumps(document, allow_nan=False, indent=indent, separators=None if indent else (",", ":"))


def write_whole(path: str | Path | ConfinedPath, parts: Iterable[bytes | memoryview]) -> None:
    """Write a private file atomically, by renaming: a reader finds the old file or the new one."""
    with written_whole(path) as file:
        file.writelines(parts)


def write_shared(path: str | Path | ConfinedPath, parts: Iterable[bytes | memoryview]) -> None:
    """Write an image, table or page requested by a user, like `write_whole` but with the umask's default mode."""
    with written_whole(path, mode=SHARED) as file:
        file.writelines(parts)


@contextlib.contextmanager
def written_whole(path: str | Path | ConfinedPath, mode: int = PRIVATE) -> Iterator[BufferedWriter]:
    """Open a file for writing that receives its name once it is complete and on the disk; on errors nothing is left.

    Files left by killed processes are removed. If the path is a link, the file behind it is written; for a confined
    path, the link is replaced.
    """
    place = path if isinstance(path, ConfinedPath) else _behind_links(path)
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(place.parent.opened_directory())
            remove_unfinished(place.parent, place.name)
            name, handle = stack.enter_context(unfinished_file(directory, place.name, mode))
            with open(handle, "wb", closefd=False) as file:
                yield file
            os.fsync(handle)
            os.replace(name, place.name, src_dir_fd=directory, dst_dir_fd=directory)
        except NotPlainFileError:
            raise
        except OSError as error:
            reason = f"could not be written ({error.strerror}); what was there before is untouched"
            raise OSError(error.errno, reason, str(place)) from error
        _sync(directory)


@contextlib.contextmanager
def unfinished_file(directory: int, of: str = "", mode: int = PRIVATE) -> Iterator[tuple[str, int]]:
    """Create a locked file in an open directory, later to be renamed to `of`; yields its name and descriptor.

    It is removed at the end, unless it was renamed. The lock lasts as long as its writer; `remove_unfinished` thereby
    distinguishes it from files left by killed processes.
    """
    name, handle = _locked(lambda name: _create(name, directory, mode), of, directory)
    try:
        yield name, handle
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        os.close(handle)


@contextlib.contextmanager
def unfinished_directory(path: Path) -> Iterator[Path]:
    """Create a locked, private directory, later to be renamed to `path`; removed at the end, unless it was renamed."""
    with ConfinedPath(path.parent).opened_directory() as above:
        remove_unfinished(path.parent, path.name)

        def create(name: str) -> int:
            os.mkdir(name, 0o700, dir_fd=above)
            return os.open(name, BELOW, dir_fd=above)

        name, handle = _locked(create, path.name, above)
        try:
            yield path.with_name(name)
        finally:
            shutil.rmtree(name, ignore_errors=True, dir_fd=above)
            os.close(handle)


def remove_unfinished(directory: str | Path | ConfinedPath, of: str | None = None) -> None:
    """Remove unfinished files of killed processes: all of them, or those to be renamed to `of`.

    Files being written now are locked, and stay. A directory is removed only if its name is given.
    """
    stem = ".*" if of is None else rf"{re.escape(of)}\.[0-9a-z_]{{{TOKEN}}}"
    left = re.compile(rf"\.{stem}{re.escape(UNFINISHED)}", re.DOTALL)
    with contextlib.suppress(FileNotFoundError), ConfinedPath.of(directory).opened_directory() as above:
        for name in filter(left.fullmatch, os.listdir(above)):  # noqa: PTH208 - a descriptor, not a path
            with contextlib.suppress(OSError):
                handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if of is not None and stat.S_ISDIR(os.fstat(handle).st_mode):
                        shutil.rmtree(name, dir_fd=above)
                    else:
                        os.unlink(name, dir_fd=above)
                finally:
                    os.close(handle)


@contextlib.contextmanager
def nameless_file(directory: str | Path | ConfinedPath) -> Iterator[BufferedRandom]:
    """Open a nameless file in a directory, which disappears when it is closed."""
    with ConfinedPath.of(directory).opened_directory() as above, unfinished_file(above) as (name, handle):
        os.unlink(name, dir_fd=above)
        with open(handle, "w+b", closefd=False) as file:
            yield file


def sync_directory(directory: str | Path | ConfinedPath) -> None:
    """Sync the names in a directory to the disk."""
    with ConfinedPath.of(directory).opened_directory() as handle:
        _sync(handle)


def _sync(directory: int) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not sync directories has nothing to wait for
            raise


def _behind_links(path: str | Path) -> ConfinedPath:
    """Resolve the links of a path; returns a confined path with only the name left to open."""
    try:
        path = Path(path).resolve()
    except RuntimeError:  # Python up to 3.12 reports a loop of links so
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    return ConfinedPath(path.parent, (path.name,))


def _create(name: str, directory: int, mode: int) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)


def _locked(create: Callable[[str], int], of: str, directory: int) -> tuple[str, int]:
    """Create a file or directory under a new name and lock it; returns both."""
    while True:
        name = f".{of}.{secrets.token_hex(TOKEN // 2)}{UNFINISHED}"
        try:
            handle = create(name)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # without locks, nothing is taken for left over either
            fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(name, dir_fd=directory, follow_symlinks=False)):
                return name, handle
        os.close(handle)  # removed by another process as left over, before it was locked


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
