"""From a table of a historian to a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.episodes import Episode
from velocirl.buffers.data.info import DatasetInfo
from velocirl.datasets.historian.mapping import REFUSE, Channel, HistorianMapping
from velocirl.datasets.historian.rules import Cut, cut
from velocirl.datasets.historian.tables import Table, read_table, table_from
from velocirl.datasets.historian.units import conversion
from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.version import __version__

Array = NDArray[Any]


class Imported(NamedTuple):
    """A data set, and what was left out of its table."""

    dataset: Dataset
    cut: Cut

    def __str__(self) -> str:
        left = {
            "rows of a time that another has": self.cut.duplicates,
            "rows in which numbers are missing": self.cut.incomplete,
            "rows by themselves": self.cut.alone,
        }
        out = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
        found = f"{len(self.dataset):,} steps in {self.dataset.episodes:,} episodes"
        return f"{found}, a new one after {self.cut.gap:g} s without a row" + (f"; left out: {out}" if out else "")


class _Named(NamedTuple):
    """The columns of observations or actions in their order."""

    numbers: Array  # (rows, channels), in the units of the data set
    units: dict[str, str]
    space: Box


def import_historian(
    table: Any, mapping: str | Path | Mapping[str, Any] | HistorianMapping, into: str | Path | None = None
) -> Imported:
    """The data set of a historian's table (a CSV or Parquet file, or a DataFrame), see `HistorianMapping`.

    It is written to `into`, or stays in memory. Units are converted to those of the environment; whatever does not fit
    is refused with its column and row.
    """
    mapping = HistorianMapping.read(mapping)
    read = read_table(table, mapping.columns) if isinstance(table, (str, Path)) else table_from(table, "the table")
    native = None if mapping.environment is None else registry.find(mapping.environment)
    seen = _named(read, mapping.observations, "observations", native)
    done = _named(read, mapping.actions, "actions", native)
    costs, constraints = _costs(read, mapping, native)
    rewards = np.full(len(costs), mapping.reward) if not isinstance(mapping.reward, str) else None
    if rewards is None:
        read.require(str(mapping.reward), "the reward")
        rewards = read.numbers(str(mapping.reward))
    if not len(read.frame):
        raise DatasetError(f"{read.source} has no rows below its headings")
    found = _cut(read, mapping, seen, done, rewards, costs)
    terminated = _flags(read, mapping.terminated)
    info = DatasetInfo(
        seen.space,
        done.space,
        environment=None if native is None else native.id,
        signals=seen.units,
        actuators=done.units,
        constraints=constraints,
        version=__version__,
    )
    episodes = _episodes(found, mapping, (seen.numbers, done.numbers, rewards, costs, terminated))
    dataset = Dataset.from_episodes(episodes, info)
    if into is not None:
        dataset = Dataset.load(dataset.save(into))
    return Imported(dataset, found)


def _episodes(found: Cut, mapping: HistorianMapping, columns: tuple[Array, ...]) -> list[Episode]:
    seen, done, rewards, costs, terminated = (column[found.rows] for column in columns)
    episodes = []
    for first, stop in zip(found.first, found.stop, strict=True):
        steps = slice(first, stop - 1) if mapping.alignment == "taken" else slice(first + 1, stop)
        ends = np.arange(stop - first - 1) == stop - first - 2
        over = bool(terminated[stop - 1])
        flags = {"terminations": ends & over, "truncations": ends & (not over)}
        episodes.append(
            Episode(seen[first:stop].astype(np.float32), done[steps], rewards[steps], costs[steps], **flags)
        )
    return episodes


def _cut(read: Table, mapping: HistorianMapping, seen: _Named, done: _Named, rewards: Array, costs: Array) -> Cut:
    read.require(mapping.time, "the time")
    times, labels = read.seconds(mapping.time), None
    if mapping.episode is not None:
        read.require(mapping.episode, "the episode")
        labels = read.column(mapping.episode).to_numpy()
    terminated, shown = _flags(read, mapping.terminated), read.column(mapping.time).to_numpy()
    numbers = [seen.numbers, done.numbers, rewards[:, None], costs]
    names = [[one.column for one in mapping.observations], [one.column for one in mapping.actions]]
    names += [[str(mapping.reward)], [one.column for one in mapping.costs]]
    if mapping.alignment == "led":  # nothing has led to the first row of an episode
        starts = _first_rows(times, labels)
        numbers[1:] = [np.where(starts[:, None], 0.0, one) for one in numbers[1:]]
    missing: Array = np.isnan(np.concatenate(numbers, axis=1))
    incomplete: Array = np.any(missing, axis=1)
    if missing.any() and mapping.missing == REFUSE:
        row, place = (int(one) for one in np.argwhere(missing)[0])
        column = [name for group in names for name in group][place]
        rows = int(incomplete.sum())
        raise ValueError(
            f"{read.source}: column {column!r} has no number in row {row} ({rows} such rows): say missing=cut to end"
            " episodes there"
        )
    return cut(times, incomplete, labels, terminated, mapping, read.source, shown)


def _first_rows(times: Array, labels: Array | None) -> Array:
    if labels is None:
        return np.arange(len(times)) == 0
    return np.append(True, labels[1:] != labels[:-1])


def _flags(read: Table, name: str | None) -> Array:
    if name is None:
        return np.zeros(len(read.frame), np.bool_)
    read.require(name, "terminated")
    numbers = read.numbers(name)
    odd = np.flatnonzero(~np.isin(numbers, (0.0, 1.0)))
    if len(odd):
        raise ValueError(f"{read.source}: column {name!r} is {numbers[odd[0]]:g} in row {odd[0]}, and must be 0 or 1")
    return numbers.astype(np.bool_)


def _named(read: Table, channels: Sequence[Channel], what: str, native: Environment | None) -> _Named:
    """The columns of observations or actions, in the order and units of the environment where there is one."""
    named = {one.name or one.column: one for one in channels}
    known: Mapping[str, str] = {}
    space: Any = None
    if native is not None:
        known, space = (
            (native.signals, native.observation) if what == "observations" else (native.actuators, native.action)
        )
        if not known or not isinstance(space, Box) or space.shape != (len(known),):
            raise ValueError(f"{native.id} does not name its {what}, so that no table can be mapped to them")
        for name in named:
            if name not in known:
                raise ValueError(f"{native.id} has no {name!r} among its {what}{nearest(name, list(known))}")
        if missing := [name for name in known if name not in named]:
            raise ValueError(f"no column is mapped to {', '.join(missing)}, which {native.id} has among its {what}")
    columns, units = [], {}
    for name in known or named:
        numbers, units[name] = _channel(read, named[name], what, known.get(name, ""))
        columns.append(numbers)
    if space is None:
        space = _space(named, what)
    return _Named(np.stack(columns, axis=1), units, space)


def _channel(read: Table, channel: Channel, what: str, wanted: str) -> tuple[Array, str]:
    """The numbers of a column in the unit that is wanted, and that unit."""
    read.require(channel.column, what)
    heading, place = read.unit(channel.column), f"{read.source}: column {channel.column!r}"
    if heading and channel.unit and heading != channel.unit:
        raise ValueError(f"{place} is in {heading} by its heading, and in {channel.unit} by the mapping: correct one")
    unit = channel.unit or heading
    if wanted and channel.to and channel.to != wanted:
        raise ValueError(f"{place} is to be in {channel.to}, and the environment has it in {wanted}: leave out 'to'")
    to = wanted or channel.to or unit
    if wanted and not unit:
        raise ValueError(f"{place} has no unit, and the environment has it in {wanted}: say its unit in the mapping")
    factor, offset = conversion(unit, to, place)
    numbers = read.numbers(channel.column)
    return (numbers if (factor, offset) == (1.0, 0.0) else numbers * factor + offset), to


def _space(named: Mapping[str, Channel], what: str) -> Box:
    """The space of numbers of no environment: those of actions have limits, as a controller does."""
    if what == "observations":
        return Box(-np.inf, np.inf, (len(named),), np.float32)
    for name, one in named.items():
        if one.low is None or one.high is None or not one.low < one.high:
            raise ValueError(f"say between which limits {name!r} may be set: low and high, in the unit of the data set")
    low, high = ([getattr(one, end) for one in named.values()] for end in ("low", "high"))
    return Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)


def _costs(read: Table, mapping: HistorianMapping, native: Environment | None) -> tuple[Array, tuple[str, ...]]:
    names = tuple(one.name or one.column for one in mapping.costs)
    if native is not None and names:
        known = tuple(one.name for one in native.constraints)
        if set(names) != set(known):
            raise ValueError(
                f"{native.id} has the constraints {', '.join(known)}, and costs are given for {', '.join(names)}"
            )
        order = [names.index(name) for name in known]
        names, channels = known, [mapping.costs[place] for place in order]
    else:
        channels = list(mapping.costs)
    for one in channels:
        read.require(one.column, "a cost")
    columns = [read.numbers(one.column) for one in channels]
    return np.stack(columns, axis=1) if columns else np.zeros((len(read.frame), 0)), names
