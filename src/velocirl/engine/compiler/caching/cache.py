"""Disk cache of compiled code: files keyed by their dependencies, with a bound on their total size.

A lookup counts as use; beyond the bound, the least recently used files are removed first. Files that are read are
executed. They are therefore read only from an open file owned by the user, in an open directory owned by the user (see
`directories`).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache
from numba.core.serialize import dumps

from velocirl.engine.disk.directories import cache_directory, cache_path, open_cache_directory
from velocirl.engine.disk.files import UnsafePathError, open_own

BOUND = 2 * 2**30  # bytes, unless VELOCIRL_CACHE_SIZE is set
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_told: set[str] = set()  # the directories that could not be used
_written = BOUND  # bytes since the last check of the cache's size: the first file of a process triggers a check


class Entry(NamedTuple):
    """File of the cache."""

    path: Path
    size: int
    used: float  # when it was last written or found


def cache_bound() -> int:
    """Return the maximum size of the cache in bytes."""
    given = os.environ.get("VELOCIRL_CACHE_SIZE", "")
    if not given:
        return BOUND
    found = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", given.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"VELOCIRL_CACHE_SIZE is a number of bytes such as 500M or 2G, not {given!r}")
    return int(found[1]) * _UNITS[found[2].upper()]


def entries() -> list[Entry]:
    """Return the files of the cache, least recently used first."""
    found = []
    for path in cache_directory().iterdir():
        with suppress(FileNotFoundError):  # another process has removed or renamed it meanwhile
            status = path.stat()
            found.append(Entry(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def clear_cache() -> list[Entry]:
    """Remove all files of the cache and return their list."""
    found = entries()
    for entry in found:
        entry.path.unlink(missing_ok=True)
    return found


def cached_files() -> set[Path]:
    """Return the files of the cache; empty if there is no usable directory."""
    directory = _place()
    return set() if directory is None else set(directory.iterdir())


def find_code(name: str) -> bytes | None:
    """Return the contents cached under a name; None if missing or damaged."""
    try:
        directory = open_cache_directory()
    except OSError as error:
        _forgive(error)
        return None
    try:
        with open_own(cache_path() / name, directory) as file:
            digest, code = (content := file.read())[:32], content[32:]
        if _digest(name, code) != digest:
            return None
        with suppress(OSError):  # nothing can be written there, or it was just removed
            os.utime(name, dir_fd=directory)
    except UnsafePathError:
        raise
    except OSError:
        return None
    finally:
        os.close(directory)
    return code


def _digest(name: str, code: bytes) -> bytes:
    """Return the checksum of a file's name and code, so that code under another function's name is not run."""
    return hashlib.sha256(name.encode() + b"\0" + code).digest()


def keep_code(name: str, code: bytes) -> None:
    """Store code under a name; on a full or read-only disk, it is only compiled again next time."""
    directory, unfinished = _place(), None
    if directory is None:
        return
    try:
        handle, unfinished = tempfile.mkstemp(prefix=".", suffix=".unfinished", dir=directory)
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(_digest(name, code) + code)
        Path(unfinished).replace(directory / name)
        unfinished = None
        _count(len(code) + 32)
    except OSError as error:
        _warn(directory, error)
    finally:
        if unfinished is not None:
            Path(unfinished).unlink(missing_ok=True)


def _count(size: int) -> None:
    """Count written bytes; check the cache's size at a process's first file and after every 1/32 of the bound."""
    global _written
    _written += size
    bound = cache_bound()
    if _written < bound // 32:
        return
    _written = 0
    found = entries()
    excess = sum(entry.size for entry in found) - bound
    for entry in found:
        if excess <= 0:
            break
        entry.path.unlink(missing_ok=True)
        excess -= entry.size


def _place() -> Path | None:
    """Return the directory of the cache, or None if it cannot be used."""
    try:
        return cache_directory()
    except OSError as error:
        _forgive(error)
        return None


def _forgive(error: OSError) -> None:
    """Warn about a directory that cannot be written; raise for an unsafe path or one that is no directory."""
    if isinstance(error, UnsafePathError | NotADirectoryError):
        raise error
    _warn(error.filename, error)


def _warn(place: Any, error: OSError) -> None:
    """Warn once per directory, not for each of a hundred functions."""
    if str(place) not in _told:
        _told.add(str(place))
        warnings.warn(
            f"compiled code could not be cached in {place}: {error.strerror}; what is compiled now is compiled again"
            " next time, unless VELOCIRL_HOME is set to a directory that can be written",
            stacklevel=4,
        )


class _Results(CompileResultCacheImpl):
    """Numba's storage format of a compiled function, without its search for a directory."""

    def __init__(self) -> None:
        pass


class CodeFile:
    """Storage of numba's compiled versions of a function, by signature and processor.

    One file, read like all others: numba would open its own two files by path, without checking their owner.
    """

    def __init__(self, name: str, dump: Callable[[Any], bytes]) -> None:
        self._name, self._dump = name, dump

    def load(self, key: Any) -> Any:
        """Return the data saved under a key, or None."""
        return self._read().get(key)

    def save(self, key: Any, data: Any) -> None:
        """Save data under a key, in addition to existing keys."""
        keep_code(self._name, self._dump({**self._read(), key: data}))

    def flush(self) -> None:
        """Remove all saved data."""
        keep_code(self._name, self._dump({}))

    def _read(self) -> dict[Any, Any]:
        code = find_code(self._name)
        return {} if code is None else pickle.loads(code)  # noqa: S301 - machine code, of our own making


class ContentCache(FunctionCache):
    """Numba cache keyed by a fingerprint instead of a source file's date."""

    def __init__(self, function: Any, fingerprint: str, on_miss: Callable[[], None], directory: Path) -> None:
        self._name = repr(function)
        self._py_func = function
        self._on_miss = on_miss
        self._impl = _Results()
        self._cache_path = str(directory)
        self._cache_file = CodeFile(f"{fingerprint[:40]}.loop", dumps)
        self.enable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function from disk, or None after calling `on_miss`."""
        try:
            found = super().load_overload(sig, target_context)
        except UnsafePathError:
            raise
        except Exception:  # noqa: BLE001 - a damaged file fails in any way, and is written anew
            self.flush()
            found = None
        if found is None:
            self._on_miss()
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        if self._impl.check_cachable(data):
            self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))


class NoCache(NullCache):
    """Cache substitute without a usable directory: everything is compiled."""

    def __init__(self, on_miss: Callable[[], None]) -> None:
        self._on_miss = on_miss

    def load_overload(self, sig: Any, target_context: Any) -> None:  # noqa: ARG002
        """Return None after calling `on_miss`."""
        self._on_miss()


def open_cache(function: Any, fingerprint: str, on_miss: Callable[[], None]) -> ContentCache | NoCache:
    """Return the cache of a function in numba's format."""
    directory = _place()
    return NoCache(on_miss) if directory is None else ContentCache(function, fingerprint, on_miss, directory)
