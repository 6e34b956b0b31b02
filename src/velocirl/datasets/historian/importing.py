"""Import of a historian table as a dataset."""

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
from velocirl.buffers.data.file import require_place
from velocirl.buffers.data.info import DatasetInfo
from velocirl.datasets.historian.filling import fill
from velocirl.datasets.historian.mapping import CUT, HOLD, INTERPOLATE, KEEP, MISSING, REFUSE, Channel, HistorianMapping
from velocirl.datasets.historian.rules import Cut, Rows, cut, ordered
from velocirl.datasets.historian.tables import Table, read_table, table_from
from velocirl.datasets.historian.units import conversion
from velocirl.datasets.plausibility import interval_doubt, other_units, outside, range_words, unsteady
from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.engine.operating import TIME_STEP, action_seconds
from velocirl.monitor.words import plural
from velocirl.training.settings.params import known_params
from velocirl.version import __version__

Array = NDArray[Any]


class Imported(NamedTuple):
    """Imported dataset, with counts of dropped rows and filled numbers, and warnings."""

    dataset: Dataset
    cut: Cut
    filled: int = 0  # missing numbers that were filled
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = {
            "rows of a time that another has": self.cut.duplicates,
            "rows in which numbers are missing": self.cut.incomplete,
            "rows by themselves": self.cut.alone,
        }
        out = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
        found = f"{plural(len(self.dataset), 'step')} in {plural(self.dataset.episodes, 'episode')}"
        found += f", a new one after {self.cut.gap:g} s without a row" + (f"; left out: {out}" if out else "")
        return found + (f"; filled in: {self.filled:,} missing numbers" if self.filled else "")


class _Named(NamedTuple):
    """Columns of observations or actions, in order."""

    numbers: Array  # (rows, channels), in the dataset's units
    units: dict[str, str]
    space: Box
    warnings: list[str]


class _Plant(NamedTuple):
    """Plant environment, with its parameters and the seconds between its actions."""

    native: Environment | None
    params: dict[str, Any]
    time_step: float | None


def import_historian(
    table: Any,
    mapping: str | Path | Mapping[str, Any] | HistorianMapping,
    into: str | Path | None = None,
    *,
    env: str | Environment | None = None,
    overwrite: bool = False,
) -> Imported:
    """Return the dataset of a historian's table (a CSV or Parquet file, or a DataFrame), see `HistorianMapping`.

    The dataset is written to `into`, or stays in memory. `env` overrides the mapping's environment. Units are converted
    to the environment's. Raises with column and row for impossible values: numbers outside an instrument's or
    actuator's range, rows at another interval than the environment's `time_step`, serial days read as seconds, and any
    other mismatch.
    """
    mapping = HistorianMapping.read(mapping)
    if into is not None:
        require_place(Path(into), overwrite=overwrite)
    notation = mapping.notation
    if isinstance(table, (str, Path)):
        read = read_table(table, mapping.columns, notation)
    else:
        read = table_from(table, "the table", notation)
    plant = _plant(mapping, env)
    seen = _named(read, mapping.observations, "observations", plant.native, mapping.outside)
    done = _named(read, mapping.actions, "actions", plant.native, mapping.outside)
    costs, constraints = _costs(read, mapping, plant.native)
    rewards = np.full(len(costs), mapping.reward) if not isinstance(mapping.reward, str) else None
    if rewards is None:
        read.require(str(mapping.reward), "the reward")
        rewards = read.numbers(str(mapping.reward))
    if not len(read.frame):
        raise DatasetError(f"{read.source} has no rows below its headings")
    rows, labels = _rows(read, mapping)
    time_step, odd = _time_step(rows, plant, read.source)
    numbers, filled = _numbers(rows, labels, (seen.numbers, done.numbers, rewards[:, None], costs), mapping)
    found = cut(rows, _missing(numbers, rows, mapping, read.source), mapping, read.source)
    terminated = _flags(read, mapping.terminated)[rows.kept]
    info = DatasetInfo(
        seen.space,
        done.space,
        environment=None if plant.native is None else plant.native.id,
        params=plant.params,
        signals=seen.units,
        actuators=done.units,
        constraints=constraints,
        time_step=time_step,
        version=__version__,
    )
    dataset = Dataset.from_episodes(_episodes(found, mapping, (*numbers, terminated)), info)
    warnings = [*seen.warnings, *done.warnings, *odd]
    if not dataset.rewards.any():
        warnings.append("every reward is 0: only imitation (bc) learns from it")
    if into is not None:
        dataset = Dataset.load(dataset.save(into, overwrite=overwrite))
    return Imported(dataset, found, filled, tuple(warnings))


def _plant(mapping: HistorianMapping, env: str | Environment | None) -> _Plant:
    named = mapping.environment if env is None else env
    if named is None:
        if mapping.params:
            raise ValueError(f"{mapping.source}: params are those of an environment, and it names none")
        return _Plant(None, {}, mapping.time_step)
    try:
        native = registry.find(named)
    except ValueError as error:
        raise ValueError(f"{error}; an environment of your own is named by env=, or --env plant.py:ID") from None
    params = known_params(native, mapping.params)
    declared, given = action_seconds(native, params), mapping.time_step
    if None not in (declared, given) and declared != given:
        raise ValueError(
            f"{mapping.source}: time_step={given:g} contradicts {native.id}, which takes an action every"
            f" {declared:g} s: leave it out"
        )
    return _Plant(native, params, given if declared is None else declared)


def _time_step(rows: Rows, plant: _Plant, source: str) -> tuple[float | None, list[str]]:
    """Return the seconds per step, and a warning if single intervals differ; raise if all of them do."""
    seconds, wanted = rows.intervals, plant.time_step
    if not len(seconds):
        return wanted, []
    usual = float(np.median(seconds))
    if wanted is not None and (words := interval_doubt(seconds, wanted)) is not None:
        native = plant.native
        who = "time_step is" if native is None else f"{native.id} takes an action every"
        more = f", or say params={{'time_step': {usual:g}}}" if native and TIME_STEP in native.params.fields else ""
        raise ValueError(f"{source}: {words}, and {who} {wanted:g} s: resample the table{more}")
    odd = unsteady(seconds, usual if wanted is None else wanted)
    return usual if wanted is None else wanted, [f"{odd}: a smaller gap begins a new episode there"] if odd else []


def _rows(read: Table, mapping: HistorianMapping) -> tuple[Rows, Array | None]:
    read.require(mapping.time, "the time")
    times, labels = read.seconds(mapping.time), None
    if mapping.episode is not None:
        read.require(mapping.episode, "the episode")
        labels = read.column(mapping.episode).to_numpy()
    terminated, shown = _flags(read, mapping.terminated), read.column(mapping.time).to_numpy()
    return ordered(times, labels, terminated, mapping, read.source, shown), labels


def _numbers(
    rows: Rows, labels: Array | None, columns: Sequence[Array], mapping: HistorianMapping
) -> tuple[list[Array], int]:
    """Return observations, actions, rewards and costs of the kept rows with gaps filled, and the count filled.

    Actions are held even if observations are interpolated, since an actuator holds its value. Rewards and costs are
    never filled.
    """
    numbers = list(columns)
    if mapping.alignment == "led":  # no step led to an episode's first row
        starts = np.arange(len(numbers[0])) == 0 if labels is None else np.append(True, labels[1:] != labels[:-1])
        numbers[1:] = [np.where(starts[:, None], 0.0, one) for one in numbers[1:]]
    numbers = [one[rows.kept] for one in numbers]
    if mapping.max_gap is None:
        return numbers, 0
    seen, count = fill(numbers[0], rows.times, rows.begins, mapping.missing, mapping.max_gap)
    done, more = fill(numbers[1], rows.times, rows.begins, HOLD, mapping.max_gap)
    return [seen, done, *numbers[2:]], count + more


def _missing(numbers: Sequence[Array], rows: Rows, mapping: HistorianMapping, source: str) -> Array:
    """Return a mask of rows with missing numbers; raise for the first if the mapping refuses them."""
    missing: Array = np.isnan(np.concatenate(numbers, axis=1))
    incomplete: Array = np.any(missing, axis=1)
    if missing.any() and mapping.missing == REFUSE:
        names = [one.column for one in (*mapping.observations, *mapping.actions)]
        names += [str(mapping.reward), *(one.column for one in mapping.costs)]
        row, place = (int(one) for one in np.argwhere(missing)[0])
        raise ValueError(
            f"{source}: column {names[place]!r} has no number in row {rows.kept[row]} ({int(incomplete.sum())} such"
            f" rows): say missing={CUT} to end episodes there, or {HOLD} or {INTERPOLATE}"
        )
    return incomplete


def _episodes(found: Cut, mapping: HistorianMapping, columns: tuple[Array, ...]) -> list[Episode]:
    seen, done, rewards, costs, terminated = (column[found.rows] for column in columns)
    rewards = rewards[:, 0]
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


def _flags(read: Table, name: str | None) -> Array:
    if name is None:
        return np.zeros(len(read.frame), np.bool_)
    read.require(name, "terminated")
    numbers = read.numbers(name)
    odd = np.flatnonzero(~np.isin(numbers, (0.0, 1.0)))
    if len(odd):
        raise ValueError(f"{read.source}: column {name!r} is {numbers[odd[0]]:g} in row {odd[0]}, and must be 0 or 1")
    return numbers.astype(np.bool_)


def _named(read: Table, channels: Sequence[Channel], what: str, native: Environment | None, beyond: str) -> _Named:
    """Return the columns of observations or actions, in the environment's order and units if there is one."""
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
    space = _space(named, what) if space is None else space
    columns, units, warnings = [], {}, []
    for place, name in enumerate(known or named):
        channel = named[name]
        numbers, raw, units[name] = _channel(read, channel, what, known.get(name, ""))
        low = float(space.low[place]) if channel.low is None else channel.low
        high = float(space.high[place]) if channel.high is None else channel.high
        wrong = outside(numbers, low, high)
        if wrong.any():
            words = _beyond(read, channel, numbers, raw, units[name], low, high)
            if beyond == REFUSE:
                raise ValueError(f"{words}: correct its unit or range, or say outside={MISSING} or {KEEP}")
            warnings.append(words)
            numbers = np.where(wrong, np.nan, numbers) if beyond == MISSING else numbers
        columns.append(numbers)
    return _Named(np.stack(columns, axis=1), units, space, warnings)


def _beyond(read: Table, channel: Channel, numbers: Array, raw: Array, unit: str, low: float, high: float) -> str:
    """Describe values outside a range, and name the units that would fit."""
    wrong = outside(numbers, low, high)
    row, count = int(np.argmax(wrong)), int(wrong.sum())
    said = f" {unit}" if unit not in ("", "1") else ""
    hint = other_units(raw, unit, low, high) if count > len(numbers) / 2 else ""
    return (
        f"{read.source}: column {channel.column!r} is {numbers[row]:.6g}{said} in row {row}, outside"
        f" {range_words(low, high, unit)} ({count:,} of {len(numbers):,} rows){hint}"
    )


def _channel(read: Table, channel: Channel, what: str, wanted: str) -> tuple[Array, Array, str]:
    """Return a column's numbers in the wanted unit, the numbers as stored, and the unit."""
    read.require(channel.column, what)
    heading, place = read.unit(channel.column), f"{read.source}: column {channel.column!r}"
    if heading and channel.unit and heading != channel.unit:
        raise ValueError(f"{place} is in {heading} by its heading, and in {channel.unit} by the mapping: correct one")
    unit = channel.unit or heading
    if wanted and channel.to and channel.to != wanted:
        raise ValueError(f"{place} is to be in {channel.to}, and the environment has it in {wanted}: leave out 'to'")
    to = wanted or channel.to or unit
    if wanted == "1" and not unit:  # a number without a unit, as velocirl's own tables write it; its range is checked
        unit = wanted
    if wanted and not unit:
        raise ValueError(f"{place} has no unit, and the environment has it in {wanted}: say its unit in the mapping")
    factor, offset = conversion(unit, to, place)
    numbers = read.numbers(channel.column)
    return (numbers if (factor, offset) == (1.0, 0.0) else numbers * factor + offset), numbers, to


def _space(named: Mapping[str, Channel], what: str) -> Box:
    """Build the space without an environment: actions need limits, observations may have a range."""
    for name, one in named.items():
        if what == "actions" and (one.low is None or one.high is None or not one.low < one.high):
            raise ValueError(f"say between which limits {name!r} may be set: low and high, in the unit of the data set")
        if one.low is not None and one.high is not None and not one.low < one.high:
            raise ValueError(f"the range of {name!r} is empty: low={one.low:g} must be below high={one.high:g}")
    low = [-np.inf if one.low is None else one.low for one in named.values()]
    high = [np.inf if one.high is None else one.high for one in named.values()]
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
    for one, column in zip(channels, columns, strict=True):
        if (column < 0).any():
            row = int(np.argmax(column < 0))
            raise ValueError(
                f"{read.source}: column {one.column!r} is {column[row]:g} in row {row}, and costs are at least 0"
            )
    return np.stack(columns, axis=1) if columns else np.zeros((len(read.frame), 0)), names
