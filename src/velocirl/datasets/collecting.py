"""Steps of many environments, sorted into whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import ACTIONS, OBSERVATIONS, Column, column_name, is_observed
from velocirl.buffers.data.info import DatasetInfo
from velocirl.engine.action_parts import parts_of

Array = NDArray[Any]
COPY = "copy"  # column of environment indices, which datasets do not have


class Steps:
    """Buffer of environment steps, taken out as finished episodes; ongoing episodes stay here."""

    def __init__(self, info: DatasetInfo, wanted: Mapping[str, Column], copies: int, room: int) -> None:
        """Allocate `room` steps for each environment."""
        self._info, self._copies, self._room = info, copies, room
        self._rows = {name: np.empty((room, copies, *one.shape), one.dtype) for name, one in wanted.items()}
        self._ends = np.zeros((room, copies), np.bool_)
        self._kept = np.ones((room, copies), np.bool_)
        self._final: dict[str, list[Array]] = {name: [] for name in wanted if is_observed(name)}
        self._count = 0
        self._open = {name: np.empty((0, *one.shape), one.dtype) for name, one in wanted.items()}
        self._open[COPY] = np.empty(0, np.int64)

    @property
    def full(self) -> bool:
        """True if no further step fits."""
        return self._count == self._room

    @property
    def open_bytes(self) -> int:
        """Bytes of the ongoing episodes, as of the last `take`."""
        return sum(column.nbytes for column in self._open.values())

    def add(self, observations: Any, actions: Any, numbers: Mapping[str, Array], kept: Any = True) -> None:
        """Add one step: observations, actions, rewards, costs and episode ends; call `final` if an episode ended.

        Steps of environments that are not `kept` are dropped.
        """
        row = self._count
        self._kept[row] = kept
        for kind, space, values in (
            (OBSERVATIONS, self._info.observation_space, observations),
            (ACTIONS, self._info.action_space, actions),
        ):
            for part in parts_of(space):
                self._rows[column_name(kind, part)][row] = inside(values, part.path)
        for name, values in numbers.items():
            self._rows[name][row] = values
        self._ends[row] = numbers["terminations"] | numbers["truncations"]
        self._count += 1

    def final(self, observations: Any) -> None:
        """Add the final observations of the episodes that ended with the last added step."""
        ended = np.flatnonzero(self._ends[self._count - 1])
        for part in parts_of(self._info.observation_space):
            found = self._final[column_name(OBSERVATIONS, part)]
            if isinstance(observations, np.ndarray) and observations.dtype == object:
                found.append(np.stack([np.asarray(inside(observations[copy], part.path)) for copy in ended]))
            else:
                found.append(np.asarray(inside(observations, part.path))[ended])

    def cut(self, observations: Any) -> None:
        """Truncate all ongoing episodes after the last added step; `observations` are their final ones."""
        row = self._count - 1
        going = ~self._ends[row]
        # Final observations are ordered by step and environment, so this step's are rebuilt.
        for part in parts_of(self._info.observation_space):
            name = column_name(OBSERVATIONS, part)
            now = np.array(inside(observations, part.path))
            if self._ends[row].any():
                now[self._ends[row]] = self._final[name].pop()
            self._final[name].append(now)
        self._rows["truncations"][row] |= going
        self._ends[row] = True

    def take(self) -> dict[str, Array]:
        """Take out the finished episodes, environment by environment, as the columns of a dataset."""
        count, copies = self._count, self._copies
        rows = {name: one[:count].reshape(count * copies, *one.shape[2:]) for name, one in self._rows.items()}
        rows[COPY] = np.tile(np.arange(copies), count)
        rows = {name: np.concatenate([self._open[name], one]) for name, one in rows.items()}
        order = np.argsort(rows[COPY], kind="stable")
        ended = np.concatenate([np.zeros(len(self._open[COPY]), np.bool_), self._ends[:count].reshape(-1)])
        final_place = np.cumsum(ended) - 1
        kept = np.concatenate([np.ones(len(self._open[COPY]), np.bool_), self._kept[:count].reshape(-1)])
        order = order[kept[order]]
        rows, final_place, ended = {name: one[order] for name, one in rows.items()}, final_place[order], ended[order]
        # A run of steps ends with its episode or its environment; in the second case the episode is ongoing.
        stops = ended | np.append(np.diff(rows[COPY]) != 0, True)[: len(ended)]
        run = np.cumsum(stops) - stops
        over = ended[np.flatnonzero(stops)][run] if len(run) else np.zeros(0, np.bool_)
        self._open = {name: one[~over] for name, one in rows.items()}
        found = {name: one[over] for name, one in rows.items() if name != COPY}
        ends = np.flatnonzero(ended[over])
        steps, episodes = len(found["rewards"]), len(ends)
        found["starts"] = np.concatenate([[0], ends + 1]).astype(np.int64)
        places = np.arange(steps) + np.cumsum(ended[over]) - ended[over]
        last = found["starts"][1:] + np.arange(episodes)
        for name, finals in self._final.items():
            column = np.empty((steps + episodes, *found[name].shape[1:]), found[name].dtype)
            column[places] = found[name]
            if episodes:
                column[last] = np.concatenate(finals)[final_place[over][ends]]
            found[name] = column
            finals.clear()
        self._count = 0
        self._ends[:] = False
        return found


def first_steps(columns: dict[str, Array], steps: int) -> dict[str, Array]:
    """Return the first `steps` steps of a dataset's columns; an episode that continues is truncated there."""
    starts = columns["starts"]
    if steps >= starts[-1]:
        return columns
    episodes = int(np.searchsorted(starts, steps, "left"))
    found = {
        name: column[: steps + episodes if is_observed(name) else steps].copy()
        for name, column in columns.items()
        if name != "starts"
    }
    found["truncations"][-1:] |= ~found["terminations"][-1:]
    found["starts"] = np.append(starts[:episodes], steps).astype(np.int64)
    return found


def inside(values: Any, path: tuple[Any, ...]) -> Any:
    """Return the part of a space's value at `path`."""
    for key in path:
        values = values[key]
    return values
