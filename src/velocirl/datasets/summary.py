"""Dataset summary in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.buffers.data.columns import ACTIONS, OBSERVATIONS, columns_of, stretches
from velocirl.buffers.data.dataset import Dataset

MOST = 1024  # numbers in a row that are listed one by one: images have too many
AT = 1e-6  # tolerance for being at a limit, as a fraction of the range

Array = NDArray[Any]


class Spread(NamedTuple):
    """Distribution of one signal or actuator."""

    name: str
    unit: str
    mean: float
    std: float
    least: float
    greatest: float
    at_limits: float | None  # fraction at or beyond a limit of its space, if it has limits

    @property
    def heading(self) -> str:
        """Name, with the unit if there is one."""
        return f"{self.name} [{self.unit}]" if self.unit not in ("", "1") else self.name


def summary(dataset: Dataset) -> dict[str, Any]:
    """Return a summary of a dataset in plain values."""
    info, returns, lengths = dataset.info, dataset.returns(), dataset.lengths()
    found: dict[str, Any] = {
        "environment": info.environment,
        "level": info.level,
        "policy": info.policy,
        "seed": info.seed,
        "transitions": len(dataset),
        "episodes": dataset.episodes,
        "bytes": sum(column.nbytes for column in dataset.columns.values()),
        "terminated": int(dataset.terminations.sum()),
        "truncated": int((dataset.truncations & ~dataset.terminations).sum()),
        "scenario": info.scenario,
        "time_step": info.time_step,
        "references": dict(info.references),
        "reference_episodes": dict(info.reference_episodes),
        "reference_intervals": {name: list(ends) for name, ends in info.reference_intervals.items()},
        "checksum": dataset.checksum,
        "version": info.version,
    }
    if dataset.episodes:
        found["length"] = {"mean": float(lengths.mean()), "least": int(lengths.min()), "greatest": int(lengths.max())}
        found["return"] = _of(returns)
        if {"random", "expert"} <= set(info.references):
            found["score"] = float(info.normalised(returns.mean()))
        costs = dataset.episode_costs().mean(axis=0)
        found["cost"] = {name: float(cost) for name, cost in zip(info.constraints, costs, strict=True)}
    for kind in (OBSERVATIONS, ACTIONS):
        found[kind] = [spread._asdict() for spread in spreads(dataset, kind)]
    return found


def spreads(dataset: Dataset, kind: str) -> list[Spread]:
    """Return the distribution of each number, computed block by block: data may be larger than memory."""
    found = []
    for name, unit, column, place, limits in channels(dataset, kind):
        count, total, squares, least, greatest, at = 0, 0.0, 0.0, np.inf, -np.inf, 0
        for _, rows in stretches(column):
            values = rows.reshape(len(rows), -1)[:, place].astype(np.float64)
            count, total, squares = count + len(values), total + values.sum(), squares + np.square(values).sum()
            least, greatest = min(least, values.min()), max(greatest, values.max())
            if limits is not None:
                near = AT * (limits[1] - limits[0])
                at += int(((values <= limits[0] + near) | (values >= limits[1] - near)).sum())
        if count:
            mean = total / count
            std = float(np.sqrt(max(squares / count - mean**2, 0.0)))
            share = None if limits is None else at / count
            found.append(Spread(name, unit, float(mean), std, float(least), float(greatest), share))
    return found


def channels(dataset: Dataset, kind: str) -> Iterator[tuple[str, str, Array, int, tuple[float, float] | None]]:
    """Iterate over the numbers of observations or actions: name, unit, column, index in its rows, and limits."""
    info = dataset.info
    named = list((info.signals if kind == OBSERVATIONS else info.actuators).items())
    columns = [(name, one) for name, one in columns_of(info).items() if name.partition("/")[0] == kind]
    if sum(int(np.prod(one.shape)) for _, one in columns) > MOST:
        return
    number = 0
    for name, one in columns:
        space = None if one.part is None else one.part.space
        for place in range(int(np.prod(one.shape))):
            short = name.removeprefix(f"{kind}/") if "/" in name else kind[:-1]
            called = named[number] if number < len(named) else (f"{short}[{place}]" if one.shape else short, "")
            limits = None
            if isinstance(space, Box):
                low, high = float(space.low.reshape(-1)[place]), float(space.high.reshape(-1)[place])
                limits = (low, high) if np.isfinite([low, high]).all() else None
            yield called[0], called[1], dataset.columns[name], place, limits
            number += 1


def _of(values: Array) -> dict[str, float]:
    named = {"mean": values.mean(), "std": values.std(), "least": values.min(), "greatest": values.max()}
    return {name: float(value) for name, value in named.items()}
