"""Records: the named fields of an environment, stored as one row of a structured array per environment."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.errors import DefinitionError


class FieldType:
    """Scalar field type, `float32`; indexing returns the type of a small array, `int8[9]` or `float32[3, 3]`.

    Calling it casts, in plain Python and in compiled functions alike: `int32(state.angle)`.
    """

    def __init__(self, scalar: type[np.generic], shape: tuple[int, ...] = ()) -> None:
        self.scalar = scalar
        self.shape = shape

    def __getitem__(self, shape: int | tuple[int, ...]) -> FieldType:
        """Return the type of an array field of this shape."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if self.shape or not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise DefinitionError(f"{self}[{shape}] is not a field type: write {self.scalar.__name__}[9] or [3, 3]")
        if self.scalar is np.bool_:
            raise DefinitionError(f"bool_[{shape}] has no compiled form: write int8[{shape}] with 0 and 1")
        return FieldType(self.scalar, sizes)

    def __call__(self, value: Any) -> Any:
        """Cast a value to a scalar of this type."""
        return self.scalar(value)

    def __repr__(self) -> str:
        return self.scalar.__name__ + (f"[{', '.join(map(str, self.shape))}]" if self.shape else "")


if TYPE_CHECKING:
    # For a type checker a field of a record is simply a NumPy scalar.
    from numpy import bool_, float32, float64, int8, int16, int32, int64, uint8
else:
    float32 = FieldType(np.float32)
    float64 = FieldType(np.float64)
    int8 = FieldType(np.int8)
    int16 = FieldType(np.int16)
    int32 = FieldType(np.int32)
    int64 = FieldType(np.int64)
    uint8 = FieldType(np.uint8)
    bool_ = FieldType(np.bool_)

NOT_GIVEN = object()


class Between(NamedTuple):
    """Placeholder for the default of a field with bounds."""

    low: float
    high: float
    default: Any


def between(low: float, high: float, *, default: Any = NOT_GIVEN) -> Any:
    """Declare the bounds of a field, both included, and optionally its default.

    In a record, `row: int32 = between(0, 4)` or `length: int32 = between(1, 30, default=3)`. They hold during an
    episode. Parameters, saved states and writes of functions beyond them raise an error.
    """
    return Between(low, high, default)


_INSTEAD = {"float": "float32", "int": "int32 or int64", "bool": "bool_", "str": "an integer code"}


class Record:
    """Type of a record: its fields, their defaults, and a factory of its rows."""

    def __init__(
        self,
        name: str,
        dtype: np.dtype,
        defaults: Mapping[str, Any],
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.defaults = dict(defaults)
        self.bounds = dict(bounds or {})  # minimum and maximum of the fields that have them

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in the order of their definition."""
        return self.dtype.names or ()

    @property
    def double(self) -> bool:
        """True if any field has double precision."""
        return any(self.dtype[name].base == np.float64 for name in self.fields)

    def rows(self, count: int, values: Mapping[str, Any] | None = None) -> NDArray[Any]:
        """Return an array of `count` rows, filled with the defaults, then with `values` (scalars, or one per row)."""
        rows = np.zeros(count, self.dtype)
        self.fill(rows, {**self.defaults, **(values or {})})
        return rows

    def fill(self, rows: NDArray[Any], values: Mapping[str, Any]) -> None:
        """Write values (scalars, or one per row) into the fields of rows; raises ValueError for invalid values."""
        for name, value in values.items():
            if name not in self.fields:
                raise ValueError(f"{self.name} has no field {name!r}{self.suggestion(name)}")
            column = rows[name]
            given = np.asarray(value)
            if given.dtype.kind not in "biuf" or not np.all(np.isfinite(given)):
                raise ValueError(f"{self.name}.{name} must be finite numbers, got {value!r}")
            try:
                with np.errstate(over="ignore"):
                    column[...] = given
            except ValueError:
                raise ValueError(
                    f"{self.name}.{name} has shape {given.shape}; give one value, or one for each of {len(rows)} copies"
                ) from None
            fits = np.isfinite(column) if column.dtype.kind == "f" else column == given
            if not np.all(fits):
                raise ValueError(f"{self.name}.{name} is a {column.dtype}, which cannot hold {value!r}")
            low, high = self.bounds.get(name, (-np.inf, np.inf))
            if np.any(column < low) or np.any(column > high):
                raise ValueError(f"{self.name}.{name} must be from {low} to {high}, got {value!r}")

    def extremes(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return rows with the extreme values that a function may receive; without randomization, these rows."""
        return [rows]

    def beyond(self, rows: NDArray[Any]) -> tuple[str, Any] | None:
        """Return the first field with a value outside of its bounds, and that value, or None."""
        for name, (low, high) in self.bounds.items():
            wrong = (rows[name] < low) | (rows[name] > high)
            if wrong.any():
                return name, rows[name][wrong].flat[0]
        return None

    def suggestion(self, name: str) -> str:
        """Return the end of a message about an unknown field: the nearest name, or all of them."""
        near = difflib.get_close_matches(name, self.fields, n=1)
        if near:
            return f": did you mean {near[0]!r}?"
        return "; it has none" if self is NO_PARAMS else f"; its fields are {', '.join(self.fields)}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle NO_PARAMS by name, so that unpickling returns the same object."""
        return "NO_PARAMS" if self is NO_PARAMS else super().__reduce__()

    def __repr__(self) -> str:
        return f"Record({self.name}: {', '.join(self.fields)})"


NO_PARAMS = Record("Params", np.dtype([("_unused", np.uint8)]), {})


def record(cls: type) -> Record:
    """Turn a class of annotated fields into a record type: `position: float32`, `gravity: float32 = 9.8`."""
    place = f"record {cls.__name__} ({cls.__module__})"
    fields: list[tuple[Any, ...]] = []
    defaults: dict[str, Any] = {}
    bounds: dict[str, tuple[float, float]] = {}
    for name, annotation in inspect.get_annotations(cls, eval_str=True).items():
        if name.startswith("_"):
            raise DefinitionError(f"{place}: field {name!r} may not start with an underscore")
        if not isinstance(annotation, FieldType):
            if not (isinstance(annotation, type) and issubclass(annotation, np.generic)):
                written = getattr(annotation, "__name__", repr(annotation))
                advice = _INSTEAD.get(written, "a velocirl field type such as float32 or int8[9]")
                raise DefinitionError(f"{place}: field {name!r} is annotated {written}; write {advice} instead")
            annotation = FieldType(annotation)
        fields.append((name, annotation.scalar, annotation.shape))
        given = getattr(cls, name, NOT_GIVEN)
        if isinstance(given, Between):
            if not given.low <= given.high:
                raise DefinitionError(f"{place}: field {name!r} cannot lie between {given.low} and {given.high}")
            bounds[name], given = (given.low, given.high), given.default
        if given is not NOT_GIVEN:
            defaults[name] = given
    if not fields:
        raise DefinitionError(f"{place} has no fields: write at least one, such as `position: float32`")
    result = Record(cls.__name__, np.dtype(fields, align=True), defaults, bounds)
    result.rows(1)  # raises here, at the definition, for a default that does not fit
    return result


NARROW: tuple[Any, ...] = (np.int8, np.int16, np.uint8)
_item, _attribute = np.void.__getitem__, np.void.__getattribute__  # cached: plain Python spends much time there


class Row(np.record):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Row of records with fields as attributes, in plain Python as in compiled code.

    In NumPy's own rows a field could not be called `clip` or `size`, which are methods. Narrow integers are read as 64
    bits, as in compiled code. A value that does not fit its field raises an error: compiled code would wrap it around
    silently.
    """

    def __getattribute__(self, name: str) -> Any:
        try:
            value = _item(self, name)
        except ValueError:  # there is no such field
            return _attribute(self, name)
        if isinstance(value, np.void):  # a record within the record
            return np.record.__getitem__(self, name)
        return np.int64(value) if type(value) in NARROW else value

    def __iter__(self) -> Any:
        """Raise TypeError, since compiled code cannot unpack a row."""
        first, *_ = self.dtype.names or ("name",)
        example = "[0]" if first.isdigit() else f".{first}"
        raise TypeError(f"a record is read part by part, as in `x{example}`: it cannot be unpacked or looped over")

    def __setattr__(self, name: str, value: Any) -> None:
        dtype: Any = _attribute(self, "dtype")
        fields = dtype.fields
        if name not in fields:
            raise AttributeError(f"there is no field {name!r}: there are {', '.join(dtype.names)}")
        _require_fit(name, fields[name][0], value)
        self[name] = value


def _require_fit(name: str, kind: np.dtype, value: Any) -> None:
    """Raise an error for a value that compiled code cannot write into a field, or would change."""
    if kind.shape:
        if not isinstance(value, np.ndarray) or value.shape != kind.shape or value.base is None:  # another field's
            count = int(np.prod(kind.shape))
            first = f"{name}[{', '.join('0' * len(kind.shape))}]"
            raise TypeError(
                f"{name} is an array of {count} numbers and is written by its elements, {first} = ..., or {name}[:] ="
                " ... for all of them"
            )
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        raise TypeError(f"{name} is one number, and an array is written into it")
    elif kind.kind in "iu" and isinstance(value, (int, np.integer)):
        least, most = _limits(kind)
        if not least <= value <= most:
            wide = "int32" if kind.itemsize < 4 else "int64"
            raise OverflowError(
                f"{value} does not fit {name}, an {kind} from {least} to {most}, and would be wrapped around"
                f" in compiled code; declare it {wide}"
            )


@cache
def _limits(kind: np.dtype) -> tuple[int, int]:
    """Return the minimum and maximum integer of a type."""
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)


def with_attributes(records: NDArray[Any]) -> Any:
    """Return a view of records whose rows have their fields as attributes."""
    return records.view(np.dtype((Row, records.dtype)))
