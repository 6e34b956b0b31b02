"""Copies whose frames are drawn by many threads together, for devices that have thousands of them.

A step is then work for each copy and work for each row of each frame in turn. Between the two all threads meet: a frame
is drawn from the state that a copy is in before it begins anew, and moved by a place before the next is drawn.
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
    """Whether the frames of one copy are more than a thread's own work."""
    return environment.observe_row is not None or environment.stack > 1


class SharedFrames:
    """The work of copies that see in this way; `owner` is that of their functions, see `Work`.

    A device may have a way of its own to `draw` the rows of the newest frames, see `drawing_newest`.
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
        """Each copy takes the step that its action says."""
        return self._after(self._work(moving(self._life.move)))

    def random_step(self) -> Works:
        """Each copy takes a step with a random action."""
        return self._after(self._work(moving_randomly(self._life.choose, self._life.move)))

    def begin(self, chosen: Any) -> Works:
        """Those that are chosen start a new episode."""
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
    """So many bytes as words, as few as they can be: their number and their type."""
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    return size // width, np.dtype(f"u{width}")


# Scalar functions: what is compiled; `rows` are the parts of a copy, or 0 where it is drawn as a whole ----------------


def painting(environment: Environment) -> Callable[..., Any]:
    """`paint(frames, copies, copy, k, y)`: row y of frame k of what a copy sees, or all of the frame."""
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
    """Whether the last step of a copy was that of its episode."""
    return copies.terminated[copy] or copies.truncated[copy]


def moving(move: Callable[..., Any]) -> Callable[..., Any]:
    """`step(i, r, place, copies)`: copy i takes the step that its action says, and is as that left it."""

    def step(i, r, place, copies):  # noqa: ARG001 - every function of an index has the same first arguments
        move(copies, i)

    return step


def moving_randomly(choose: Callable[..., Any], move: Callable[..., Any]) -> Callable[..., Any]:
    """The same with a random action."""

    def step(i, r, place, copies):  # noqa: ARG001
        choose(copies, i)
        move(copies, i)

    return step


def pushing(stack: int, size: int) -> Callable[..., Any]:
    """`push(i, r, place, copies, seen, final)`: a word of each frame of a copy moves by one place.

    To where the newest frame will be drawn: in what is seen or, where an episode ended, in its last observation.
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
    """`draw(i, r, place, copies)`: a row of the newest frame, of what is seen or of an episode's last observation."""
    parts, newest = max(rows, 1), stack - 1

    def draw(i, r, place, copies):  # noqa: ARG001
        copy = i // parts
        into = copies.final_observation if ended(copies, copy) else copies.observation
        paint(into, copies, copy, newest, i - copy * parts)

    return draw


def drawing_first_if_ended(paint: Callable[..., Any], rows: int, stack: int) -> Callable[..., Any]:
    """`draw(i, r, place, copies)`: a row of all frames of a copy that has begun anew."""
    parts = max(rows, 1)

    def draw_first(i, r, place, copies):  # noqa: ARG001
        copy = i // parts
        if ended(copies, copy):
            for k in range(stack):
                paint(copies.observation, copies, copy, k, i - copy * parts)

    return draw_first


def drawing_first_if_chosen(paint: Callable[..., Any], rows: int, stack: int) -> Callable[..., Any]:
    """`draw(i, r, place, copies, chosen)`: the same of one that was chosen to."""
    parts = max(rows, 1)

    def draw_first(i, r, place, copies, chosen):  # noqa: ARG001
        copy = i // parts
        if chosen[copy]:
            for k in range(stack):
                paint(copies.observation, copies, copy, k, i - copy * parts)

    return draw_first


def concluding_unseen(life: Any) -> Callable[..., Any]:
    """`conclude(i, r, place, copies)`: where its episode ended, copy i begins the next; and what it may do."""
    end, look = life.conclude, life.show

    def conclude(i, r, place, copies):  # noqa: ARG001
        end(copies, i)
        look(copies, i)

    return conclude
