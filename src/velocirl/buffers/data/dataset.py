"""Dataset: recorded episodes, as columns in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import (
    ACTIONS,
    OBSERVATIONS,
    DatasetError,
    Nested,
    check_structure,
    check_values,
    columns_of,
    is_observed,
)
from velocirl.buffers.data.episodes import Episode, columns_from
from velocirl.buffers.data.file import Stored, checksum_of, read_columns, require_place, write_columns
from velocirl.buffers.data.info import DatasetInfo
from velocirl.engine.action_parts import as_given

Array = NDArray[Any]
BLOCK = 65536  # transitions per block


@dataclass(frozen=True)
class Transitions:
    """Consecutive steps, (rows, ...) each; for Dict and Tuple spaces, dicts and tuples of such arrays.

    `next_observations` are of the same episode; its last one is its final observation. The last step of an episode has
    no next action: where `has_next` is false, `next_actions` is the action itself.
    """

    observations: Any
    actions: Any
    rewards: NDArray[np.float32]
    costs: NDArray[np.float32]  # (rows, constraints)
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    next_observations: Any
    next_actions: Any
    has_next: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


class Dataset:
    """Recorded episodes, as columns: `velocirl.Dataset.load("reactor-medium.vds")`.

    Observations have one row more than there are steps in each episode, as in Minari's layout. Episode k has the steps
    `starts[k]:starts[k + 1]`, and its observations begin at `starts[k] + k`. Actions are in the units of the plant.
    Termination sets the discount to 0, truncation never does. No pair of steps crosses an episode.
    """

    def __init__(self, info: DatasetInfo, columns: Mapping[str, Array], *, path: Path | None = None) -> None:
        """Use columns by name, as in `Dataset.columns`. Raises DatasetError if they do not fit `info`."""
        self.info = info
        self.columns = {name: np.asarray(column) for name, column in columns.items()}
        self.path = path
        check_structure(info, self.columns)

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode | Mapping[str, Any]], info: DatasetInfo) -> Dataset:
        """Create a dataset from episodes, or from dicts with the fields of `Episode`."""
        found = cls(info, columns_from(episodes, info))
        check_values(info, found.columns)
        return found

    @classmethod
    def concatenate(cls, datasets: Sequence[Dataset], **changed: Any) -> Dataset:
        """Concatenate datasets; `changed` fields replace those of the first one's info."""
        if not datasets:
            raise ValueError("there is no data set to concatenate")
        first = datasets[0].info
        for other in datasets[1:]:
            for name in ("observation_space", "action_space", "constraints"):
                if getattr(other.info, name) != getattr(first, name):
                    was, now = getattr(first, name), getattr(other.info, name)
                    raise ValueError(
                        f"data sets of another {name.replace('_', ' ')} do not go together: {was} and {now}"
                    )
        columns = {name: np.concatenate([one.columns[name] for one in datasets]) for name in columns_of(first)}
        ends = np.cumsum([0, *(len(one) for one in datasets)])
        starts = [one.starts[:-1] + end for one, end in zip(datasets, ends, strict=False)]
        columns["starts"] = np.concatenate([*starts, ends[-1:]]).astype(np.int64)
        return cls(replace(first, **changed), columns)

    @classmethod
    def load(cls, path: str | Path, *, check: bool = True) -> Dataset:
        """Load a dataset by mapping its file. All of it is checked first, chunk by chunk, whatever its size.

        With `check=False` only its header is checked, which takes no time for a file that is known to be intact.
        """
        info, columns, checksum = read_columns(Path(path), check=check)
        try:
            found = cls(info, columns, path=Path(path))
            if check:
                check_values(info, columns)
        except DatasetError as error:
            raise DatasetError(f"{path}: {error}") from None
        found.checksum = checksum
        return found

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the dataset to one file, whole or not at all; any reader of safetensors opens it, too.

        Missing directories are created. An existing file is replaced only with `overwrite=True`.
        """
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        require_place(Path(path), overwrite=overwrite)
        self.validate()
        write_columns(Path(path), self.info, self._stored(), overwrite=overwrite)
        return Path(path)

    def validate(self) -> None:
        """Raise DatasetError for values that cannot be learned from; its message names the value and its position."""
        check_structure(self.info, self.columns)
        check_values(self.info, self.columns)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the whole dataset, the same as in its file."""
        return checksum_of(self.info, self._stored())

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self.rewards)

    def __repr__(self) -> str:
        of = f" of {self.info.environment}" if self.info.environment else ""
        return f"Dataset({len(self):,} transitions in {self.episodes:,} episodes{of})"

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.starts) - 1

    @property
    def observations(self) -> Any:
        """Observations (transitions + episodes, ...); a dict or tuple of such arrays if the space is one."""
        return self._given(OBSERVATIONS, self.columns)

    @property
    def actions(self) -> Any:
        """Actions (transitions, ...), in the units of the plant."""
        return self._given(ACTIONS, self.columns)

    @property
    def rewards(self) -> NDArray[np.float32]:
        """Rewards (transitions,)."""
        return self.columns["rewards"]

    @property
    def costs(self) -> NDArray[np.float32]:
        """Costs (transitions, constraints)."""
        return self.columns["costs"]

    @property
    def terminations(self) -> NDArray[np.bool_]:
        """True where a step terminated its episode, (transitions,)."""
        return self.columns["terminations"]

    @property
    def truncations(self) -> NDArray[np.bool_]:
        """True where a step was the last before its episode was truncated, (transitions,)."""
        return self.columns["truncations"]

    @property
    def starts(self) -> NDArray[np.int64]:
        """First step of each episode, and the number of all steps, (episodes + 1,)."""
        return self.columns["starts"]

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of steps of each episode."""
        return np.diff(self.starts)

    def returns(self) -> NDArray[np.float64]:
        """Return the undiscounted return of each episode."""
        return self._sums(self.rewards)

    def episode_costs(self) -> NDArray[np.float64]:
        """Return the costs of each episode, (episodes, constraints)."""
        return self._sums(self.costs)

    def episode(self, number: int) -> Episode:
        """Return one episode, as views of the columns."""
        if not -self.episodes <= number < self.episodes:
            raise IndexError(f"there is no episode {number}: the data set has {self.episodes}")
        number %= self.episodes
        first, stop = int(self.starts[number]), int(self.starts[number + 1])
        seen = slice(first + number, stop + number + 1)
        cut = {name: one[seen if is_observed(name) else slice(first, stop)] for name, one in self._rows()}
        rest = {name: cut[name] for name in ("rewards", "costs", "terminations", "truncations")}
        return Episode(self._given(OBSERVATIONS, cut), self._given(ACTIONS, cut), **rest)

    def transitions(self, block: int = BLOCK, *, first: int = 0, stop: int | None = None) -> Iterator[Transitions]:
        """Iterate over all steps in order, in blocks of rows; memory is needed for one block only.

        `first` and `stop` select a range of steps.
        """
        if block < 1:
            raise ValueError(f"a block has at least one transition, got {block}")
        end = len(self) if stop is None else min(stop, len(self))
        for begin in range(first, end, block):
            yield self._block(begin, min(begin + block, end))

    def _block(self, first: int, stop: int) -> Transitions:
        rows = np.arange(first, stop)
        number = np.searchsorted(self.starts, rows, "right") - 1
        has_next = rows + 1 < self.starts[number + 1]
        seen, following = rows + number, np.where(has_next, rows + 1, rows)
        # Slice contiguous rows once, and index within the slice.
        low = int(seen[0])
        near = {
            name: one[low : int(seen[-1]) + 2] if is_observed(name) else one[first : stop + 1]
            for name, one in self._rows()
        }
        of = {name: one[seen - low if is_observed(name) else slice(stop - first)] for name, one in near.items()}
        later = {
            name: near[name][seen - low + 1 if is_observed(name) else following - first]
            for name in near
            if is_observed(name) or name.partition("/")[0] == ACTIONS
        }
        return Transitions(
            self._given(OBSERVATIONS, of),
            self._given(ACTIONS, of),
            **{name: of[name] for name in ("rewards", "costs", "terminations", "truncations")},
            next_observations=self._given(OBSERVATIONS, later),
            next_actions=self._given(ACTIONS, later),
            has_next=has_next,
        )

    def _rows(self) -> Iterator[tuple[str, Array]]:
        return ((name, column) for name, column in self.columns.items() if name != "starts")

    def _given(self, kind: str, columns: Mapping[str, Array]) -> Any:
        space = self.info.observation_space if kind == OBSERVATIONS else self.info.action_space
        return as_given(space, Nested(columns, kind))  # pyright: ignore[reportArgumentType]

    def _sums(self, column: Array) -> Array:
        if not self.episodes:
            return np.zeros((0, *column.shape[1:]))
        return np.add.reduceat(column, self.starts[:-1], axis=0, dtype=np.float64)

    def _stored(self) -> dict[str, Stored]:
        return {name: Stored.of(column) for name, column in self.columns.items()}
