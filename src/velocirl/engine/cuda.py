"""The CUDA target: the same functions as device functions, one thread for each copy."""

from __future__ import annotations

import importlib
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import registers
from velocirl.engine.cuda_cache import CUDAContentCache
from velocirl.engine.diagnosis import diagnose
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.fingerprint import fingerprint
from velocirl.engine.lifecycle import Copies, lifecycle
from velocirl.engine.precision import single_precision
from velocirl.engine.rehearsal import rehearse
from velocirl.engine.translating import Translator

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 still imports the name that NumPy 2.5 removed
    setattr(np, "row_stack", np.vstack)  # noqa: B010 - by name, since no NumPy that we may use declares it

# Imported by name: numba brings a numba.cuda of its own, which numba-cuda replaces, and type checkers know only that.
cuda: Any = importlib.import_module("numba.cuda")
types: Any = importlib.import_module("numba.cuda.types")

THREADS_PER_BLOCK = 128


class CUDATarget:
    """Runs a fleet on a GPU; its arrays live there."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:
        if threads is not None:
            raise ValueError(f"{environment.id}: threads= is for the CPU; a GPU runs a thread for each copy")
        if not cuda.is_available():
            raise RuntimeError(f'{environment.id}: no CUDA device can be used here; run with device="cpu"')
        self._environment = environment
        self._params = copies.params
        self._count = len(copies.elapsed)
        self._blocks = -(-self._count // THREADS_PER_BLOCK)
        self.copies = Copies(*(cuda.to_device(array) for array in copies))
        self._translator = cuda_translator(environment)
        self._kernels = kernels(environment)
        self._ready: dict[str, Any] = {}

    def prepare(self) -> None:
        """Nothing is left to be done before a step."""

    def advance(self) -> None:
        """Every copy takes the step that its action says."""
        self._launch("advance", self.copies)

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        """The chosen copies start a new episode."""
        self._launch("begin", self.copies, cuda.to_device(chosen))

    def run_randomly(self, steps: int) -> None:
        """Every copy takes `steps` steps with random actions, in one launch."""
        self._launch("run_randomly", self.copies, np.int64(steps))

    def ended(self) -> Any:
        """Which copies ended an episode in the last step, as an array of the device."""
        flags = cuda.device_array(self._count, np.bool_)
        self._launch("ended", self.copies.terminated, self.copies.truncated, flags)
        return flags

    def accept(self, actions: Any) -> int:
        """Take actions that lie on the device; returns the first copy whose action is outside the space, or -1."""
        first_bad = cuda.to_device(np.full(1, self._count, np.int32))
        self._launch("accept", cuda.as_cuda_array(actions), self.copies.action, first_bad)
        bad = int(first_bad.copy_to_host()[0])
        return bad if bad < self._count else -1

    def _launch(self, name: str, *arguments: Any) -> None:
        if name in self._ready:
            self._ready[name](*arguments)
        else:
            self._launch_first(name, arguments)

    def _launch_first(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Compile a kernel by its first launch, from which numba derives the types."""
        function = self._kernels[name]
        kernel: Any = cuda.jit(self._translator.loop(function))
        kernel._cache = CUDAContentCache(
            fingerprint(function, self._environment.double, "cuda"),
            lambda: rehearse(self._environment, self._params),
        )
        rule = single_precision(cuda.descriptor.cuda_target.typing_context, types)
        try:
            with nullcontext() if self._environment.double else rule:
                with warnings.catch_warnings():  # a small fleet does not fill a GPU, and that is nobody's fault
                    warnings.filterwarnings("ignore", message=".*Grid size")
                    configured = kernel[self._blocks, THREADS_PER_BLOCK]
                configured(*arguments)
        except (DefinitionError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - numba fails in many ways; all are told as the user's line
            raise diagnose(self._environment, error) from (error if debugging() else None)
        self._ready[name] = configured


def cuda_translator(environment: Environment) -> Translator:
    """A translator to device functions."""
    # A device function may not return an array, so what gives a row is inlined before it becomes one.
    rows = {registers.row: cuda.jit(registers.row, device=True, inline="always")}
    inlined = cuda.jit(device=True, forceinline=True)
    return Translator(environment.id, double=environment.double, compiled=inlined, substitutes=rows)


def duplicate(array: Any) -> Any:
    """A copy of an array of the device, on the device."""
    twin = cuda.device_array(array.shape, array.dtype)
    twin.copy_to_device(array)
    return twin


def kernels(environment: Environment) -> dict[str, Any]:
    """The kernels of a fleet, composed from one copy's life, one thread for each copy."""
    begin, move, conclude, show, choose = lifecycle(environment)
    accepted = _accepted(environment)

    def advance(copies):
        i = cuda.grid(1)
        if i < copies.elapsed.shape[0]:
            move(copies, i)
            conclude(copies, i)
            show(copies, i)

    def begin_chosen(copies, chosen):
        i = cuda.grid(1)
        if i < copies.elapsed.shape[0] and chosen[i]:
            begin(copies, i)
            show(copies, i)

    def run_randomly(copies, steps):
        i = cuda.grid(1)
        if i < copies.elapsed.shape[0]:
            for _ in range(steps):
                choose(copies, i)
                move(copies, i)
                conclude(copies, i)
                show(copies, i)

    # These two take no more arrays than they need, since preparing an argument costs more than these kernels do.
    def accept(actions, into, first_bad):
        i = cuda.grid(1)
        if i < into.shape[0] and not accepted(actions, i, into):
            cuda.atomic.min(first_bad, 0, i)

    def ended(terminated, truncated, flags):
        i = cuda.grid(1)
        if i < flags.shape[0]:
            flags[i] = terminated[i] or truncated[i]

    return {"ended": ended, "advance": advance, "begin": begin_chosen, "run_randomly": run_randomly, "accept": accept}


def _accepted(environment: Environment) -> Any:
    """The function `(actions, i, into)` that copies one action if it lies in the space, and says whether it does."""
    space: Any = environment.action
    if not space.shape:
        count = int(space.n)

        def accept_index(actions, i, into):
            inside = actions[i] >= 0 and actions[i] < count
            if inside:
                into[i] = actions[i]
            return inside

        return accept_index
    discrete = hasattr(space, "nvec")
    low = (0,) * len(space.nvec) if discrete else tuple(float(bound) for bound in space.low)
    high = tuple(int(n) - 1 for n in space.nvec) if discrete else tuple(float(bound) for bound in space.high)

    def accept_row(actions, i, into):
        for k in range(into.shape[1]):
            if not (actions[i, k] >= low[k] and actions[i, k] <= high[k]):  # so written, NaN is outside
                return False
        for k in range(into.shape[1]):
            into[i, k] = actions[i, k]
        return True

    return accept_row
