"""A fleet: many copies of one environment as arrays, on one target."""

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

# The arrays that decide the future of any fleet, and those that say what is seen now.
SAVED = ("state", "params", "rng", "elapsed", "total", "observation", "mask")
LINE = 64  # bytes of a line of the cache
NO_LIMIT = 2**31 - 1  # steps: more than the counter of an episode could hold
TARGETS = {"cpu": "CPUTarget", "cuda": "CUDATarget", "python": "PythonTarget"}


def saved(environment: Environment) -> tuple[str, ...]:
    """Those of an environment's fleet: with constraints, also the costs of episodes so far."""
    return (*SAVED, "cost_total") if environment.constraints else SAVED


class Target(Protocol):
    """What runs a fleet: the interpreter, CPU cores or a CUDA device."""

    copies: Copies

    def prepare(self) -> None:
        """Do what a first step would have to do before it."""
        ...

    def advance(self) -> None:
        """Every copy takes the step that its action says."""
        ...

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        """The chosen copies start a new episode."""
        ...

    def run_randomly(self, steps: int) -> None:
        """Every copy takes `steps` steps with random legal actions drawn from its own stream."""
        ...


@runtime_checkable
class LendingTarget(Target, Protocol):
    """One that can write what is seen into arrays of the caller's."""

    def advance_into(self, observation: NDArray[Any]) -> None:
        """Every copy takes the step that its action says; `copies.observation` is out of date then."""
        ...

    def show(self) -> None:
        """Bring `copies.observation` up to date."""
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
    """A fleet of `count` copies on a device, its arrays allocated once; with `check`, see `checked`."""
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
    """The steps after which an episode is cut off: as given, with None the environment's own, with -1 never."""
    if max_episode_steps is None:
        return environment.max_steps or NO_LIMIT
    if max_episode_steps == -1:
        return NO_LIMIT
    return min(_positive(environment, "max_episode_steps", max_episode_steps), NO_LIMIT)


def _entropy() -> int:
    """A seed that nobody chose."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def _positive(environment: Environment, name: str, value: Any) -> int:
    return require_count(f"{environment.id}: {name}", value)


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros that begin with a line of the cache: threads that share the array by whole lines do not share a line."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape))
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins with a line of the cache."""
    twin = aligned_zeros(array.shape, array.dtype)
    twin[...] = array
    return twin


def allocate(environment: Environment, count: int, params: Mapping[str, Any], limit: int = NO_LIMIT) -> Copies:
    """The arrays of a fleet, on the host."""
    seen, seen_dtype = observed(environment, count)
    row = environment.state.dtype.itemsize * 2 + environment.params.dtype.itemsize
    row += 2 * np.dtype(seen_dtype).itemsize * int(np.prod(seen[1:]))
    claim(count * row, f"num_envs={count} copies of {environment.id}")
    try:
        rows = environment.params.rows(count, params)
    except ValueError as error:
        raise ValueError(f"{environment.id}: {error}") from None
    masked = count, environment.num_masked if environment.legal else 1
    constrained = (count, len(environment.constraints)) if environment.constraints else (1, 1)  # which nobody reads
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
    """The shape and the type of what so many copies do."""
    space = environment.action
    if has_parts(space):
        return (count,), action_type(space)
    return (count, *(space.shape or ())), np.float32 if isinstance(space, Box) else np.int32


def observed(environment: Environment, count: int) -> tuple[tuple[int, ...], Any]:
    """The shape and the type of what so many copies see."""
    space = environment.observation
    if isinstance(space, Discrete):
        return (count, 1), np.int64
    return (count, *(space.shape or ())), space.dtype


def seed_copies(
    rng: NDArray[Any], seed: int | Sequence[int | None] | None, chosen: NDArray[np.bool_], first: int = 0
) -> Any:
    """Give the chosen copies the streams of a seed, or of one seed each; returns the seed that was used.

    `rng` is the fleet's array of streams, (copies, 2); copy 0 gets the stream number `first` of a seed.
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
