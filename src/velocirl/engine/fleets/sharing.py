"""Rendering of pixel observations by many threads per environment, for devices with thousands of threads.

A step alternates between work per environment and work per row of each frame. All threads synchronize between the two.
A final frame is drawn from the state before autoreset; the stack is shifted before the newest frame is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.engine.fleets.lifecycle import Copies, blind_life
from velocirl.engine.fleets.loops import beginning
from velocirl.engine.framing import frame_size
from velocirl.engine.targets.launching import Divided, Work

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

Works = list[Work | Divided]


def shares_frames(environment: Environment) -> bool:
    """Return whether an environment's frames are too much work for a single thread."""
    return environment.observe_row is not None or environment.stack > 1


class SharedFrames:
    """Work items of fleets that draw frames in this way; `owner` owns their functions, see `Work`.

    A device may pass its own function `draw` for the rows of the newest frames, see `drawing_newest`.
    """

    def __init__(
        self, environment: Environment, copies: Copies, owner: Any = None, draw: Callable[..., Any] | None = None
    ) -> None:
        self._environment, self._copies, self._owner = environment, copies, owner
        self._life = blind_life(environment)
        self._rows = 0 if environment.observe_row is None else int((environment.frame.shape or (0,))[0])
        self._paint = painting(environment)
        self._draw = draw or drawing_newest(self._paint, self._rows, environment.stack)

    def step(self) -> Works:
        """Return the work that steps each environment by its action."""
        return self._after(self._work(moving(self._life.move)))

    def random_step(self) -> Works:
        """Return the work that steps each environment by a random action."""
        return self._after(self._work(moving_randomly(self._life.choose, self._life.move)))

    def begin(self, chosen: Any) -> Works:
        """Return the work that starts a new episode in the chosen environments."""
        draw = drawing_first_if_chosen(self._paint, self._rows, self._environment.stack)
        return [self._work(beginning(self._life), chosen), self._work(draw, chosen, parts=self._rows)]

    def _after(self, moved: Any) -> Works:
        stack = self._environment.stack
        works = [moved]
        if stack > 1:
            size, word = words_of(frame_size(self._environment) * self._copies.observation.dtype.itemsize)
            count = len(self._copies.elapsed)
            arrays = self._copies.observation, self._copies.final_observation
            seen, final = (array.reshape(count, -1).view(word) for array in arrays)
            works.append(self._work(pushing(stack, size), seen, final, parts=size))
        return [
            *works,
            self._work(self._draw, parts=self._rows),
            self._work(concluding_unseen(self._life)),
            self._work(drawing_first_if_ended(self._paint, self._rows, stack), parts=self._rows),
        ]

    def _work(self, function: Callable[..., Any], *more: Any, parts: int = 0) -> Any:
        work = Work(function, (self._copies, *more), self._owner)
        return Divided(work, parts) if parts else work


def words_of(size: int) -> tuple[int, Any]:
    """Return the number and the type of the widest words that `size` bytes consist of."""
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    return size // width, np.dtype(f"u{width}")


# Scalar functions, which are compiled; `rows` are the parts of a frame, or 0 if it is drawn as a whole ----------------


def painting(environment: Environment) -> Callable[..., Any]:
    """Make `paint(frames, copies, copy, k, y)`, which draws row y of frame k of an environment, or the whole frame."""
    observe: Any = environment.observe
    observe_row: Any = environment.observe_row

    def paint_row_of_stack(frames, copies, copy, k, y):
        observe_row(copies.state[copy], copies.params[copy], y, frames[copy, k, y])

    def paint_row(frames, copies, copy, k, y):  # noqa: ARG001
        observe_row(copies.state[copy], copies.params[copy], y, frames[copy, y])

    def paint_frame(frames, copies, copy, k, y):  # noqa: ARG001
        observe(copies.state[copy], copies.params[copy], frames[copy, k])

    if observe is not None:
        return paint_frame
    return paint_row_of_stack if environment.stack > 1 else paint_row


def ended(copies, copy):
    """Return whether an environment's last step ended its episode."""
    return copies.terminated[copy] or copies.truncated[copy]


def moving(move: Callable[..., Any]) -> Callable[..., Any]:
    """Make `step(i, r, place, copies)`, which steps environment i by its action, without autoreset."""

    def step(i, r, place, copies):  # noqa: ARG001 - every function of an index has the same first arguments
        move(copies, i)

    return step


def moving_randomly(choose: Callable[..., Any], move: Callable[..., Any]) -> Callable[..., Any]:
    """Make `step(i, r, place, copies)`, which steps environment i by a random action, without autoreset."""

    def step(i, r, place, copies):  # noqa: ARG001
        choose(copies, i)
        move(copies, i)

    return step


def pushing(stack: int, size: int) -> Callable[..., Any]:
    """Make `push(i, r, place, copies, seen, final)`, which shifts one word of each frame of an environment by one slot.

    The target is the array that receives the newest frame: the observation or, if an episode ended, its last
    observation.
    """
    newest = stack - 1

    def push(i, r, place, copies, seen, final):  # noqa: ARG001
        copy = i // size
        word = i - copy * size
        into = final if ended(copies, copy) else seen
        for k in range(newest):
            into[copy, word + k * size] = seen[copy, word + (k + 1) * size]

    return push


def drawing_newest(paint: Callable[..., Any], rows: int, stack: int) -> Callable[..., Any]:
    """Make `draw(i, r, place, copies)`: draws a row of the newest frame, of the observation or the final one."""
    parts, newest = max(rows, 1), stack - 1

    def draw(i, r, place, copies):  # noqa: ARG001
        copy = i // parts
        into = copies.final_observation if ended(copies, copy) else copies.observation
        paint(into, copies, copy, newest, i - copy * parts)

    return draw


def drawing_first_if_ended(paint: Callable[..., Any], rows: int, stack: int) -> Callable[..., Any]:
    """Make `draw(i, r, place, copies)`: draws a row of the new episode's stack, after an environment's autoreset."""
    parts = max(rows, 1)

    def draw_first(i, r, place, copies):  # noqa: ARG001
        copy = i // parts
        if ended(copies, copy):
            for k in range(stack):
                paint(copies.observation, copies, copy, k, i - copy * parts)

    return draw_first


def drawing_first_if_chosen(paint: Callable[..., Any], rows: int, stack: int) -> Callable[..., Any]:
    """Make `draw(i, r, place, copies, chosen)`: draws a row of all frames of a chosen environment."""
    parts = max(rows, 1)

    def draw_first(i, r, place, copies, chosen):  # noqa: ARG001
        copy = i // parts
        if chosen[copy]:
            for k in range(stack):
                paint(copies.observation, copies, copy, k, i - copy * parts)

    return draw_first


def concluding_unseen(life: Any) -> Callable[..., Any]:
    """Make `conclude(i, r, place, copies)`: ends environment i's finished episode and writes its action mask."""
    end, look = life.conclude, life.show

    def conclude(i, r, place, copies):  # noqa: ARG001
        end(copies, i)
        look(copies, i)

    return conclude
