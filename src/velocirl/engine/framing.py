"""How often copies are seen, and how many frames at once: `skip` and `stack`, of an environment or of its user.

A stack of frames lies in the row of observations itself, so it is saved and carried with it: a step moves the frames by
one place and writes the newest; the first frame of an episode fills all places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from velocirl.engine.drawing import drawing

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

FRAMES = "skip", "stack"


def check_framing(frame: gymnasium.Space[Any], skip: Any, stack: Any) -> None:
    """Refuse numbers that are none, and a stack of what is not an array."""
    for name, value in (("skip", skip), ("stack", stack)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}= must be a whole number from 1, got {value!r}")
    if stack > 1 and not (isinstance(frame, Box) and frame.shape):
        raise ValueError(f"stack={stack} stacks arrays, so that observation= must be a Box, got {frame}")


def stacked_space(frame: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """The space of what agents see: that of one frame, or of several, oldest first."""
    if stack == 1:
        return frame
    assert isinstance(frame, Box)  # noqa: S101 - checked before
    low, high = (np.repeat(bound[None], stack, axis=0) for bound in (frame.low, frame.high))
    return Box(low, high, dtype=frame.dtype)  # pyright: ignore[reportArgumentType]


def frame_size(environment: Environment) -> int:
    """The numbers of one frame."""
    return int(np.prod(environment.frame.shape or ()))


def with_frames(environment: Environment, skip: int | None = None, stack: int | None = None) -> Environment:
    """The environment with these numbers, of which None leaves its own; refused where it has its own already."""
    if environment.plain is not None:
        return drawing(with_frames(environment.plain, skip, stack), environment.drawn)
    for name, asked in (("skip", skip), ("stack", stack)):
        own = getattr(environment, name)
        if asked is not None and own > 1:
            raise ValueError(f"{environment.id} has {name}={own} already: leave {name} out")
    skip, stack = (environment.skip if skip is None else skip), (environment.stack if stack is None else stack)
    try:
        check_framing(environment.frame, skip, stack)
    except ValueError as error:
        raise ValueError(f"{environment.id}: {error}") from None
    if (skip, stack) == (environment.skip, environment.stack):
        return environment
    return framing(environment, int(skip), int(stack))


def framing(environment: Environment, skip: int, stack: int) -> Environment:
    """An environment without draws as it was defined, but for how it is seen."""
    twin = object.__new__(type(environment))
    vars(twin).update(vars(environment))
    observation = stacked_space(environment.frame, stack)
    fps = environment.render_fps * environment.skip / skip
    vars(twin).update(skip=skip, stack=stack, observation=observation, unframed=environment, render_fps=fps)
    return twin


# Scalar functions: what is compiled -----------------------------------------------------------------------------------


def whole_frame(environment: Environment) -> Callable[..., Any]:
    """`observe(state, params, frame)`: the environment's own, or a loop over its rows."""
    if environment.observe is not None:
        return environment.observe
    observe_row: Any = environment.observe_row
    height = int((environment.frame.shape or (0,))[0])

    def observe(state, params, frame):
        for y in range(height):
            observe_row(state, params, y, frame[y])

    return observe


def repeated_step(environment: Environment) -> Callable[..., Any]:
    """`step(state, params, action, rng)`: the environment's own, or as often as it skips, until it terminates."""
    step, times = environment.step, environment.skip
    if times == 1:
        return step

    def repeat(state, params, action, rng):
        total, terminated = np.float32(0), False
        for _ in range(times):
            reward, terminated = step(state, params, action, rng)
            total += np.float32(reward)
            if terminated:
                break
        return total, terminated

    return repeat


def push(frames, into, moved, size):
    """Move frames by one place, in their own memory or into other; `moved` numbers, of which each frame has `size`."""
    source, target = frames.reshape(-1), into.reshape(-1)
    for k in range(moved):
        target[k] = source[k + size]


def fill(frames, filled, size):
    """Let the newest frame fill the places of all before it, which are so many numbers."""
    flat = frames.reshape(-1)
    for first in range(0, filled, size):
        for k in range(size):
            flat[first + k] = flat[filled + k]
