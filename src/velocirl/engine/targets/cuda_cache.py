"""Disk cache of CUDA kernels, keyed by a kernel's dependencies as on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from velocirl.engine.compiler.caching.cache import CodeFile
from velocirl.engine.disk.directories import cache_path
from velocirl.engine.disk.files import UnsafePathError

try:
    numba_cuda: Any = importlib.import_module("numba_cuda")
    caching: Any = importlib.import_module("numba.cuda.core.caching")
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
except ImportError as missing:
    raise ImportError('device="cuda" needs numba-cuda: pip install "velocirl[cuda]"') from missing


class _Kernels(dispatcher.CUDACacheImpl):
    """Storage format of numba-cuda's kernels, without its search for a directory."""

    def __init__(self) -> None:
        pass


class CUDAContentCache(dispatcher.CUDACache):
    """Cache of kernels keyed by a fingerprint instead of a source file's date."""

    def __init__(self, fingerprint: str, on_miss: Callable[[], None]) -> None:
        self._cache_path = str(cache_path())
        self._name = fingerprint
        self._impl = _Kernels()
        self._on_miss = on_miss
        self._cache_file = CodeFile(f"cuda-{numba_cuda.__version__}-{fingerprint[:40]}.loop", caching.dumps)
        self._launch_config_key = None
        self._launch_config_sensitive_flag = False
        self._launch_config_marker_path = ""
        self.enable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel from disk, or None after calling `on_miss`."""
        try:
            found = super().load_overload(sig, target_context)
        except UnsafePathError:
            raise
        except Exception:  # noqa: BLE001 - a damaged file fails in any way, and is written anew
            self._cache_file.flush()
            found = None
        if found is None:
            self._on_miss()
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))
