"""CUDA target: the same functions as device functions, one thread per environment or per row of its frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.action_parts import has_parts
from velocirl.engine.checking.diagnosis import diagnose
from velocirl.engine.checking.rehearsal import rehearse
from velocirl.engine.fleets.lifecycle import Copies, each_array, lifecycle
from velocirl.engine.fleets.loops import beginning, running, stepping
from velocirl.engine.fleets.sharing import SharedFrames, Works, shares_frames
from velocirl.engine.targets.cuda_kernels import cuda
from velocirl.engine.targets.cuda_rows import drawing_in_tiles
from velocirl.engine.targets.cuda_units import CUDALauncher, Relauncher, unit_translator
from velocirl.engine.targets.launching import DividingLauncher, Work

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


class CUDATarget:
    """Target that runs a fleet on a GPU, with its arrays in GPU memory."""

    def __init__(self, environment: Environment, copies: Copies, threads: int | None = None) -> None:
        if threads is not None:
            raise ValueError(f"{environment.id}: threads= is for the CPU; a GPU runs a thread for each copy")
        if not cuda.is_available():
            raise RuntimeError(f'{environment.id}: no CUDA device can be used here; run with device="cpu"')
        self._environment = environment
        self._params = copies.params
        self._count = len(copies.elapsed)
        self.copies = each_array(cuda.to_device, copies)
        self.life = lifecycle(environment)
        self._shared: SharedFrames | None = None
        if shares_frames(environment):
            self._shared = SharedFrames(environment, self.copies, self, drawing_in_tiles(environment))
        self.translator = unit_translator(environment.id, double=environment.double)
        if not has_parts(environment.action):  # composite actions are validated on the host
            self._accept = Relauncher(accepting(environment), self.translator, self)
        self._flag = Relauncher(flag_ended, self.translator)
        self._sum = Relauncher(sum_row, self.translator)

    def rehearse(self) -> None:
        """Dry-run the environment's functions in plain Python, before any of them is compiled."""
        rehearse(self._environment, self._params)

    def tell(self, error: Exception) -> Exception:
        """Convert a compiler error to a message about the user's own line."""
        return diagnose(self._environment, error)

    def prepare(self) -> None:
        """Do nothing: no work precedes the first step."""

    def step_works(self) -> Works:
        """Return the work that steps each environment by its action."""
        return [Work(stepping(self.life), (self.copies,), self)] if self._shared is None else self._shared.step()

    def advance(self) -> None:
        """Step every environment by its action."""
        self._advance(0)

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        """Start a new episode in the chosen environments."""
        self._chosen.copy_to_device(chosen)
        self._begin(0)

    def run_randomly(self, steps: int) -> None:
        """Take `steps` steps with random actions; in one launch, unless frames are drawn by several threads."""
        if self._shared is None:
            self._run(steps)
            return
        for _ in range(steps):
            self._run(0)

    def ended(self) -> Any:
        """Return the mask of environments whose episode ended in the last step, as a device array."""
        flags = cuda.device_array(self._count, np.bool_)
        self._flag(self._count, self.copies.terminated, self.copies.truncated, flags)
        return flags

    def summed(self, rows: Any) -> Any:
        """Return the sum of each environment's row of numbers, as a device array."""
        sums = cuda.device_array(self._count, rows.dtype)
        self._sum(self._count, rows, sums)
        return sums

    def accept(self, actions: Any) -> int:
        """Copy actions from a device array; returns the first environment whose action is outside the space, or -1."""
        first_bad = cuda.to_device(np.full(1, self._count, np.int32))
        self._accept(self._count, actions, self.copies.action, first_bad)
        bad = int(first_bad.copy_to_host()[0])
        return bad if bad < self._count else -1

    @cached_property
    def _advance(self) -> Callable[[int], None]:
        return self._launch(self.step_works())

    @cached_property
    def _begin(self) -> Callable[[int], None]:
        if self._shared is not None:
            return self._launch(self._shared.begin(self._chosen))
        return self._launch([Work(beginning(self.life), (self.copies, self._chosen), self)])

    @cached_property
    def _run(self) -> Callable[[int], None]:
        if self._shared is not None:
            return self._launch(self._shared.random_step())
        return self._launch([Work(running(self.life), (self.copies,), self)])

    @cached_property
    def _chosen(self) -> Any:
        return cuda.to_device(np.zeros(self._count, np.bool_))

    def _launch(self, works: Works) -> Callable[[int], None]:
        return DividingLauncher(CUDALauncher(self.translator, lambda: 0)).launch(works, self._count)


def parts_on_host(actions: Any) -> Any:
    """Copy actions to the host, including all parts that are on the device."""
    if isinstance(actions, Mapping):
        return {key: parts_on_host(part) for key, part in actions.items()}
    if isinstance(actions, (tuple, list)):
        return type(actions)(parts_on_host(part) for part in actions)
    on_device = hasattr(actions, "__cuda_array_interface__")
    return cuda.as_cuda_array(actions).copy_to_host() if on_device else actions


def duplicate(array: Any) -> Any:
    """Copy a device array, on the device."""
    twin = cuda.device_array(array.shape, array.dtype)
    twin.copy_to_device(array)
    return twin


def flag_ended(i, r, place, terminated, truncated, flags):  # noqa: ARG001 - as every function of an index
    """Store whether environment i has ended an episode."""
    flags[i] = terminated[i] or truncated[i]


def sum_row(i, r, place, rows, sums):  # noqa: ARG001
    """Store the sum of environment i's numbers."""
    total = rows[i, 0]
    for k in range(1, rows.shape[1]):
        total += rows[i, k]
    sums[i] = total


def accepting(environment: Environment) -> Callable[..., Any]:
    """Make `accept(i, r, place, actions, into, first_bad)`: copies environment i's action, or reports it as invalid."""
    accepted = _accepted(environment)

    def accept(i, r, place, actions, into, first_bad):  # noqa: ARG001
        if not accepted(actions, i, into):
            cuda.atomic.min(first_bad, 0, np.int32(i))

    return accept


def _accepted(environment: Environment) -> Any:
    """Make the function `(actions, i, into)` that copies an action if it is in the space; it returns whether it is."""
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
            if not (actions[i, k] >= low[k] and actions[i, k] <= high[k]):  # in this form, NaN is outside
                return False
        for k in range(into.shape[1]):
            into[i, k] = actions[i, k]
        return True

    return accept_row
