"""The CUDA target: the same functions as device functions, one thread for each copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.cuda_kernels import Kernel, cuda, cuda_translator
from velocirl.engine.diagnosis import diagnose
from velocirl.engine.lifecycle import Copies, lifecycle
from velocirl.engine.rehearsal import rehearse

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


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
        self.copies = Copies(*(cuda.to_device(array) for array in copies))
        self.life = lifecycle(environment)
        self.translator = cuda_translator(environment.id, double=environment.double)
        self._kernels = {
            name: Kernel(function, self.translator, self.rehearse, self.tell)
            for name, function in kernels(environment).items()
        }

    def rehearse(self) -> None:
        """Run the environment's functions in plain Python, before anything of them is compiled."""
        rehearse(self._environment, self._params)

    def tell(self, error: Exception) -> Exception:
        """A failure of the compiler as the person's own line."""
        return diagnose(self._environment, error)

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
        self._kernels[name].launch(self._count, arguments)


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
