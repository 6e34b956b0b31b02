"""Kernels: scalar functions compiled for a GPU at their first launch, and launched on any stream."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from velocirl.engine import random
from velocirl.engine.compiler import registers
from velocirl.engine.compiler.arithmetic.clearing import clear, clear_by_words
from velocirl.engine.compiler.arithmetic.precision import single_precision
from velocirl.engine.compiler.caching.fingerprint import fingerprint
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.targets.cuda_cache import CUDAContentCache
from velocirl.engine.targets.rounding import rounded_product

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 still imports the name that NumPy 2.5 removed
    setattr(np, "row_stack", np.vstack)  # noqa: B010 - by name, since no NumPy that we may use declares it

# Imported by name: numba has its own numba.cuda, which numba-cuda replaces, and type checkers know only that.
cuda: Any = importlib.import_module("numba.cuda")
types: Any = importlib.import_module("numba.cuda.types")
intrinsic: Any = importlib.import_module("numba.cuda.extending").intrinsic
arrays: Any = importlib.import_module("numba.cuda.np.arrayobj")

THREADS_PER_BLOCK = 128


def cuda_translator(name: str, *, double: bool) -> Translator:
    """Return a translator to device functions."""
    # A device function may not return an array, so a function that returns a row is inlined before compilation.
    known: dict[Any, Any] = {registers.row: cuda.jit(registers.row, device=True, inline="always")}
    known[registers.shaped] = registers.compiled_shaped(intrinsic, arrays.populate_array)
    known[clear] = clear_by_words(intrinsic)
    known[random.product] = rounded_product(intrinsic)
    known[cuda.cg.this_grid] = cuda.cg.this_grid  # a built-in of the compiler, under any name
    inlined = cuda.jit(device=True, forceinline=True)
    return Translator(name, double=double, compiled=inlined, substitutes=known)


class Kernel:
    """Kernel with one thread for each index; numba derives its types from the first launch."""

    def __init__(
        self,
        function: Any,
        translator: Translator,
        before: Callable[[], None] = lambda: None,  # called if compilation is needed
        tell: Callable[[Exception], Exception] = lambda error: error,  # converts a compiler error
    ) -> None:
        self._function, self._translator = function, translator
        self._before, self._tell = before, tell
        self._kernel: Any = None
        self._configured: dict[tuple[int, int], Any] = {}  # by blocks and stream

    def launch(self, count: int, arguments: tuple[Any, ...], stream: int = 0) -> None:
        """Run the kernel for `count` indices on a stream, given by its handle."""
        place = -(-count // THREADS_PER_BLOCK), stream
        if place in self._configured:
            self._configured[place](*arguments)
        else:
            self._launch_first(place, arguments)

    def threads_at_once(self) -> int:
        """Return the number of threads that can synchronize within this kernel; it must have been launched before."""
        (compiled,) = self._kernel.overloads.values()
        return compiled.max_cooperative_grid_blocks(THREADS_PER_BLOCK) * THREADS_PER_BLOCK

    def _launch_first(self, place: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        blocks, stream = place
        double = self._translator.double
        if self._kernel is None:
            self._kernel = cuda.jit(self._translator.loop(self._function))
            self._kernel._cache = CUDAContentCache(fingerprint(self._function, double, "cuda"), self._before)
        rule = single_precision(cuda.descriptor.cuda_target.typing_context, types)
        try:
            with nullcontext() if double else rule:
                with warnings.catch_warnings():  # a small fleet does not fill a GPU, which is no error
                    warnings.filterwarnings("ignore", message=".*Grid size")
                    on = cuda.external_stream(stream) if stream else 0
                    configured = self._kernel[blocks, THREADS_PER_BLOCK, on]
                configured(*arguments)
        except (DefinitionError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - numba fails in many ways
            raise self._tell(error) from (error if debugging() else None)
        self._configured[place] = configured
