"""The disk cache of compiled functions: numba's own file format, found by what a function depends on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache

from velocirl.engine.directories import UnsafeDirectoryError, cache_directory

MOST_FILES = 1024  # two per compiled function; the oldest go first


class _Results(CompileResultCacheImpl):
    """How numba stores a compiled function; ours needs no search for a place to put it."""

    def __init__(self) -> None:
        pass


class ContentCache(FunctionCache):
    """A numba cache whose key is a fingerprint instead of a source file's date."""

    def __init__(self, function: Any, fingerprint: str, on_miss: Callable[[], None]) -> None:
        directory = cache_directory()
        self._name = repr(function)
        self._py_func = function
        self._on_miss = on_miss
        self._impl = _Results()
        self._cache_path = str(directory)
        self._cache_file = IndexDataCacheFile(str(directory), fingerprint[:40], fingerprint)
        self.enable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple()

    def holds(self, signature: Any, codegen: Any) -> bool:
        """Whether a function compiled for these types is there; it is not loaded."""
        try:
            return self._index_key(signature, codegen) in self._cache_file._load_index()
        except Exception:  # noqa: BLE001 - a damaged file fails in any way
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function from disk, or None after telling that it has to be compiled."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001 - a damaged file fails in any way, and is written anew
            self.flush()
            found = None
        if found is None:
            self._on_miss()
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        if not self._impl.check_cachable(data):
            return
        try:
            self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))
            _prune(Path(self._cache_path))
        except OSError as error:  # a full or read-only disk costs a compilation next time, not this run
            _warn(self._cache_path, error)


class NoCache(NullCache):
    """What stands in where there is no place for a cache: everything is compiled."""

    def __init__(self, on_miss: Callable[[], None]) -> None:
        self._on_miss = on_miss

    def holds(self, signature: Any, codegen: Any) -> bool:  # noqa: ARG002
        """Nothing is there."""
        return False

    def load_overload(self, sig: Any, target_context: Any) -> None:  # noqa: ARG002
        """Nothing, after telling that it has to be compiled."""
        self._on_miss()


def open_cache(function: Any, fingerprint: str, on_miss: Callable[[], None]) -> ContentCache | NoCache:
    """The cache of a function. A place that nobody asked for and that cannot be used costs time, not the run."""
    try:
        return ContentCache(function, fingerprint, on_miss)
    except UnsafeDirectoryError:
        raise
    except OSError as error:
        if os.environ.get("VELOCIRL_HOME"):
            raise
        _warn(error.filename, error)
        return NoCache(on_miss)


def _warn(place: Any, error: OSError) -> None:
    warnings.warn(f"compiled code could not be cached in {place}: {error}", stacklevel=3)


def _prune(directory: Path) -> None:
    dated = []
    for file in directory.iterdir():
        with suppress(FileNotFoundError):  # another process has removed or renamed it meanwhile
            dated.append((file.stat().st_mtime, file))
    for _, file in sorted(dated)[: max(0, len(dated) - MOST_FILES)]:
        file.unlink(missing_ok=True)
