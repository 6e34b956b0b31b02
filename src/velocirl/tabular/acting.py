"""Acting by a value table outside of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.engine.compiler.registers import as_rows, row
from velocirl.engine.fleets.sampling import draw_legal

if TYPE_CHECKING:
    from velocirl.tabular.learner import TabularTask


class Actor:
    """Chooses actions for a batch of state numbers."""

    def __init__(self, task: TabularTask, rng: NDArray[np.uint64]) -> None:
        self._lesson, self._rng = task, as_rows(rng)
        self._allocate(1)
        arguments = (task.table.arrays, self._places, self._mask, self._rng, np.float32(0), self._actions)
        self._draw: Any = compile_loop(
            drawing_loop(task), arguments, cpu_translator("table", double=False), before=lambda: None
        )

    def choose(self, states: NDArray[np.int64], masks: NDArray[Any] | None, rate: float | None) -> NDArray[np.int64]:
        """Return one action per state: sampled at exploration `rate`, or the first of the best if `rate` is None."""
        task = self._lesson
        if len(states) != len(self._actions):
            self._allocate(len(states))
        legal = legal_actions(task, masks, len(states))
        if rate is None:
            values = task.table.look_up(states).mean(axis=1)
            legal |= ~legal.any(axis=1, keepdims=True)  # a mask that forbids everything is ignored
            return np.where(legal, values, -np.inf).argmax(axis=1)
        if task.masked:
            self._mask["row"] = legal
        self._places[:] = task.table.places(states)
        self._draw(task.table.arrays, self._places, self._mask, self._rng, np.float32(rate), self._actions)
        return self._actions.copy()

    def _allocate(self, count: int) -> None:
        self._places, self._actions = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._mask = as_rows(np.ones((count, self._lesson.actions), np.int8))


def legal_actions(task: TabularTask, masks: NDArray[Any] | None, count: int) -> NDArray[np.bool_]:
    """Return the allowed actions, (count, actions). Raise for masks of another shape, or if the agent reads none."""
    wanted = (count, task.actions)
    if masks is not None and (not task.masked or masks.shape != wanted):
        problem = f"have shape {wanted}" if task.masked else "are not for this agent"
        raise ValueError(f"action masks of {count} observations {problem}, got {masks.shape}")
    return np.ones(wanted, np.bool_) if masks is None else np.asarray(masks) != 0


def drawing_loop(task: TabularTask) -> Any:
    """Compile `draw(table, places, masks, rng, rate, actions)`: choose for many states, at random in unvisited ones."""
    choose, count = task.exploring.choose, task.actions

    def draw(table, places, masks, rng, rate, actions):
        for i in range(len(places)):
            mask, stream = row(masks, i), row(rng, 0)
            if places[i] < 0:
                actions[i] = draw_legal(mask, 0, count, stream)
            else:
                actions[i], _ = choose(table.rows, np.uint64(places[i]), mask, stream, rate)

    return draw
