"""Frame skip and frame stack, `skip` and `stack`, of an environment or of its user.

A stack of frames is stored in the row of observations itself, so it is saved and moved with it. A step shifts the
frames by one slot and writes the newest; the first frame of an episode fills all slots.
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
    """Validate `skip` and `stack`: positive integers; stacking needs a Box with a shape."""
    for name, value in (("skip", skip), ("stack", stack)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}= must be a whole number from 1, got {value!r}")
    if stack > 1 and not (isinstance(frame, Box) and frame.shape):
        raise ValueError(f"stack={stack} stacks arrays, so that observation= must be a Box, got {frame}")


def stacked_space(frame: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Return the agent's observation space: the space of one frame, or of a stack, oldest first."""
    if stack == 1:
        return frame
    assert isinstance(frame, Box)  # noqa: S101 - checked before
    low, high = (np.repeat(bound[None], stack, axis=0) for bound in (frame.low, frame.high))
    return Box(low, high, dtype=frame.dtype)  # pyright: ignore[reportArgumentType]


def frame_size(environment: Environment) -> int:
    """Return the number of elements of one frame."""
    return int(np.prod(environment.frame.shape or ()))


def with_frames(environment: Environment, skip: int | None = None, stack: int | None = None) -> Environment:
    """Return the environment with `skip` and `stack`; None keeps its own. An environment's own cannot be changed."""
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
    """Return a copy of an environment, without randomization, with another frame skip and stack."""
    twin = object.__new__(type(environment))
    vars(twin).update(vars(environment))
    observation = stacked_space(environment.frame, stack)
    fps = environment.render_fps * environment.skip / skip
    vars(twin).update(skip=skip, stack=stack, observation=observation, unframed=environment, render_fps=fps)
    return twin


# Scalar functions, which are compiled ---------------------------------------------------------------------------------


def whole_frame(environment: Environment) -> Callable[..., Any]:
    """Return `observe(state, params, frame)`: the environment's own, or a loop over its rows."""
    if environment.observe is not None:
        return environment.observe
    observe_row: Any = environment.observe_row
    height = int((environment.frame.shape or (0,))[0])

    def observe(state, params, frame):
        for y in range(height):
            observe_row(state, params, y, frame[y])

    return observe


def repeated_step(environment: Environment) -> Callable[..., Any]:
    """Return `step(state, params, action, rng)`: the environment's own, or a repetition of it until it terminates."""
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
    """Shift frames by one slot, in place or into another array; `moved` elements, `size` in each frame."""
    source, target = frames.reshape(-1), into.reshape(-1)
    for k in range(moved):
        target[k] = source[k + size]


def fill(frames, filled, size):
    """Copy the newest frame into all slots before it, which have `filled` elements."""
    flat = frames.reshape(-1)
    for first in range(0, filled, size):
        for k in range(size):
            flat[first + k] = flat[filled + k]
