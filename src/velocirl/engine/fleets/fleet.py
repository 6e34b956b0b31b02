"""Fleet: many environments of one definition as arrays, on one target."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.action_parts import action_type, has_parts
from velocirl.engine.counts import require_count
from velocirl.engine.disk.allowance import claim
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.lifecycle import Copies

# The arrays that determine any fleet's future, and those of the current observations.
SAVED = ("state", "params", "rng", "elapsed", "total", "observation", "mask")
LINE = 64  # bytes of a cache line
NO_LIMIT = 2**31 - 1  # steps: exceeds the step counter of any episode
TARGETS = {"cpu": "CPUTarget", "cuda": "CUDATarget", "python": "PythonTarget"}


def saved(environment: Environment) -> tuple[str, ...]:
    """Return the names of a fleet's saved arrays; with constraints, they include the costs of episodes so far."""
    return (*SAVED, "cost_total") if environment.constraints else SAVED


class Target(Protocol):
    """Device that runs a fleet: the interpreter, CPU cores or a CUDA device."""

    copies: Copies

    def prepare(self) -> None:
        """Do the work that otherwise precedes the first step."""
        ...

    def advance(self) -> None:
        """Step every environment by its action."""
        ...

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        """Start a new episode in the chosen environments."""
        ...

    def run_randomly(self, steps: int) -> None:
        """Take `steps` steps with random legal actions, sampled from each environment's own stream."""
        ...


@runtime_checkable
class LendingTarget(Target, Protocol):
    """Target that can write observations into the caller's arrays."""

    def advance_into(self, observation: NDArray[Any]) -> None:
        """Step every environment by its action into `observation`; `copies.observation` is then out of date."""
        ...

    def show(self) -> None:
        """Update `copies.observation`."""
        ...


def make_target(
    environment: Environment,
    count: int,
    *,
    device: str = "cpu",
    threads: int | None = None,
    params: Mapping[str, Any] | None = None,
    check: bool = False,
    max_episode_steps: int | None = None,
) -> Target:
    """Make a fleet of `count` environments on a device, its arrays allocated once; for `check` see `checked`."""
    count = _positive(environment, "num_envs", count)
    threads = None if threads is None else _positive(environment, "threads", threads)
    if device not in TARGETS:
        raise ValueError(f"{environment.id}: device must be one of {', '.join(TARGETS)}, got {device!r}")
    if check and device == "cuda":
        raise ValueError(f'{environment.id}: check=True is for device="cpu"; what is wrong there is wrong on a GPU too')
    target = getattr(importlib.import_module(f"velocirl.engine.targets.{device}"), TARGETS[device])
    more = {"check": True} if check and device == "cpu" else {}  # the interpreter checks anyway
    copies = allocate(environment, count, params or {}, time_limit(environment, max_episode_steps))
    return target(environment, copies, threads, **more)


def time_limit(environment: Environment, max_episode_steps: int | None = None) -> int:
    """Return the number of steps after which an episode is truncated; None: the environment's own limit; -1: never."""
    if max_episode_steps is None:
        return environment.max_steps or NO_LIMIT
    if max_episode_steps == -1:
        return NO_LIMIT
    return min(_positive(environment, "max_episode_steps", max_episode_steps), NO_LIMIT)


def _entropy() -> int:
    """Return a seed from system entropy."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def _positive(environment: Environment, name: str, value: Any) -> int:
    return require_count(f"{environment.id}: {name}", value)


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros aligned to a cache line: threads that divide the array by whole lines share none."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape))
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy aligned to a cache line."""
    twin = aligned_zeros(array.shape, array.dtype)
    twin[...] = array
    return twin


def allocate(environment: Environment, count: int, params: Mapping[str, Any], limit: int = NO_LIMIT) -> Copies:
    """Allocate the arrays of a fleet, on the host."""
    seen, seen_dtype = observed(environment, count)
    row = environment.state.dtype.itemsize * 2 + environment.params.dtype.itemsize
    row += 2 * np.dtype(seen_dtype).itemsize * int(np.prod(seen[1:]))
    claim(count * row, f"num_envs={count} copies of {environment.id}")
    try:
        rows = environment.params.rows(count, params)
    except ValueError as error:
        raise ValueError(f"{environment.id}: {error}") from None
    masked = count, environment.num_masked if environment.legal else 1
    constrained = (count, len(environment.constraints)) if environment.constraints else (1, 1)  # else unused
    return Copies(
        state=aligned(environment.state.rows(count)),
        params=aligned(rows),
        rng=aligned_zeros((count, 2), np.uint64),
        elapsed=aligned_zeros(count, np.int32),
        total=aligned_zeros(count, np.float32),
        action=aligned_zeros(*acted(environment, count)),
        observation=aligned_zeros(seen, seen_dtype),
        final_observation=aligned_zeros(seen, seen_dtype),
        reward=aligned_zeros(count, np.float32),
        terminated=aligned_zeros(count, np.bool_),
        truncated=aligned_zeros(count, np.bool_),
        episode_return=aligned_zeros(count, np.float32),
        episode_length=aligned_zeros(count, np.int32),
        final_state=aligned(environment.state.rows(count)),
        mask=aligned_zeros(masked, np.int8),
        final_mask=aligned_zeros(masked, np.int8),
        violated=aligned_zeros(constrained[0], np.int32),
        costs=aligned_zeros(constrained, np.float32),
        cost_total=aligned_zeros(constrained, np.float32),
        episode_costs=aligned_zeros(constrained, np.float32),
        limit=limit,
    )


def acted(environment: Environment, count: int) -> tuple[tuple[int, ...], Any]:
    """Return the shape and the type of the actions of `count` environments."""
    space = environment.action
    if has_parts(space):
        return (count,), action_type(space)
    return (count, *(space.shape or ())), np.float32 if isinstance(space, Box) else np.int32


def observed(environment: Environment, count: int) -> tuple[tuple[int, ...], Any]:
    """Return the shape and the type of the observations of `count` environments."""
    space = environment.observation
    if isinstance(space, Discrete):
        return (count, 1), np.int64
    return (count, *(space.shape or ())), space.dtype


def seed_copies(
    rng: NDArray[Any], seed: int | Sequence[int | None] | None, chosen: NDArray[np.bool_], first: int = 0
) -> Any:
    """Give the chosen environments the streams of one seed, or of one seed each; returns the seed used.

    `rng` is the fleet's array of streams (num_envs, 2); environment 0 gets stream number `first` of a seed.
    """
    count = len(chosen)
    used: int | list[int]
    if seed is None:
        used = _entropy()
    elif isinstance(seed, (Sequence, np.ndarray)):
        used = [_entropy() if one is None else random.require_seed(one) for one in seed]
        if len(used) != count:
            raise ValueError(f"seed: give one number, or one for each of {count} copies; got {len(used)}")
    else:
        used = random.require_seed(seed)
    rng[chosen] = random.streams(used, count, first)[chosen]
    return used
