"""Specifications of the arrays in a saved state, checked before any code uses them.

A checksum shows that a file is complete, not that it is benign, and compiled code follows any index. Code that saves
arrays therefore declares them as `ArraySpec`s by name; undeclared arrays are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

STRETCH = 2**20  # rows checked together: a replay buffer may be larger than the remaining memory


class StateError(ValueError):
    """Invalid array in a saved state; the message names it and the index."""


@dataclass(frozen=True)
class ArraySpec:
    """Specification of one array of a saved state."""

    dtype: Any
    shape: tuple[int | None, ...]  # None allows any length
    minimum: Any = None  # a number, or an array that broadcasts; None without a bound
    maximum: Any = None
    finite: bool = True  # whether NaN and infinities are rejected
    optional: bool = False
    fields: Mapping[str, ArraySpec] = field(default_factory=dict)  # of records; their shapes are for one record
    packed: np.dtype[Any] | None = None  # of records that are stored as bytes: their type
    nonzero: bool = False  # whether each row must have a nonzero number, as a random stream


Specs = Mapping[str, ArraySpec]


def named(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part's arrays, or their specifications, by their names in the whole state: "fleet.state"."""
    return {f"{part}.{name}": array for name, array in arrays.items()}


def within(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a part of a state, by their names within the part."""
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def streams(count: int | None, *, optional: bool = False) -> ArraySpec:
    """Return the specification of random streams, one in each row."""
    return ArraySpec(np.uint64, (count, 2), nonzero=True, optional=optional)


def moments(size: int) -> ArraySpec:
    """Return the specification of running moments: counts, means and sums of squared deviations."""
    return ArraySpec(np.float64, (3, size), minimum=np.array([0.0, -np.inf, 0.0])[:, None])


def records(
    dtype: np.dtype[Any],
    shape: tuple[int | None, ...],
    bounds: Mapping[str, tuple[Any, Any]] | None = None,
    *,
    finite: bool = True,
) -> ArraySpec:
    """Return the specification of records of a type, with minimum and maximum of some of its fields."""
    fields = {}
    for name in dtype.names or ():
        low, high = (bounds or {}).get(name, (None, None))
        fields[name] = ArraySpec(dtype[name].base, dtype[name].shape, low, high, finite or low is not None)
    return ArraySpec(dtype, shape, fields=fields)


def check_arrays(arrays: Mapping[str, NDArray[Any]], specs: Specs, *, allow_nan: bool = False) -> None:
    """Raise StateError for arrays that differ from their specification, and for undeclared or missing ones."""
    for name in arrays:
        if name not in specs:
            raise StateError(f"the state has an array {name!r}, which does not belong to it")
    for name, spec in specs.items():
        if name in arrays:
            check_array(name, arrays[name], replace(spec, finite=spec.finite and not allow_nan), allow_nan=allow_nan)
        elif not spec.optional:
            raise StateError(f"the state has no array {name!r}")


def check_array(name: str, array: Any, spec: ArraySpec, *, allow_nan: bool = False) -> None:
    """Raise StateError for an array that differs from its specification."""
    fits = len(array.shape) == len(spec.shape) and all(
        wanted in (None, found) for found, wanted in zip(array.shape, spec.shape, strict=True)
    )
    if not fits or array.dtype != spec.dtype:
        wanted = ", ".join("any" if size is None else str(size) for size in spec.shape)
        kind = np.dtype(spec.dtype)
        raise StateError(f"{name} is {_kind(array.dtype)} {tuple(array.shape)}, and must be {_kind(kind)} ({wanted})")
    for first, rows in _stretches(array):
        _check_rows(name, rows, first, spec, allow_nan)


def _check_rows(name: str, rows: NDArray[Any], first: int, spec: ArraySpec, allow_nan: bool) -> None:
    if spec.packed is not None:
        rows = np.ascontiguousarray(rows).reshape(-1).view(spec.packed)
    for one, inner in spec.fields.items():
        finite = inner.finite and not allow_nan
        _check_numbers(f"{name}.{one}", rows[one], first, replace(inner, finite=finite))
    if not spec.fields:
        _check_numbers(name, rows, first, spec)
    if spec.nonzero and not (whole := rows.reshape(len(rows), -1).any(axis=1)).all():
        raise StateError(f"{name}[{first + int(np.argmin(whole))}] is all zeros, which it cannot be")


def _check_numbers(name: str, rows: NDArray[Any], first: int, spec: ArraySpec) -> None:
    if spec.finite and rows.dtype.kind == "f" and not np.isfinite(rows).all():
        place = np.argwhere(~np.isfinite(rows))[0]
        raise StateError(
            f"{name} is {rows[tuple(place)]} at {_place(place, first)}; it must be finite"
            " (allow_nan=True loads it all the same)"
        )
    for bound, beyond in ((spec.minimum, np.less), (spec.maximum, np.greater)):
        if bound is None:
            continue
        wrong = beyond(rows, bound)
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0])
            ends = spec.minimum, spec.maximum
            low, high = (None if end is None else np.broadcast_to(end, rows.shape)[place] for end in ends)
            raise StateError(f"{name} is {rows[place]} at {_place(place, first)}; it must be {_between(low, high)}")


def _between(low: Any, high: Any) -> str:
    if low is None or high is None:
        return f"at most {high}" if low is None else f"at least {low}"
    return f"from {low} to {high}"


def _place(place: Any, first: int) -> list[int]:
    place = [int(index) for index in place]
    return [place[0] + first, *place[1:]] if place else place


def _kind(dtype: np.dtype[Any]) -> str:
    return str(dtype) if dtype.names is None else f"records of {', '.join(dtype.names)}"


def _stretches(array: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield consecutive segments of an array, with the index of their first row."""
    if len(array.shape) == 0:
        yield 0, np.asarray(array)
        return
    for first in range(0, len(array), STRETCH):
        yield first, np.asarray(array[first : first + STRETCH])
