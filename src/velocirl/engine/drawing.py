"""Domain randomization: parameters sampled per environment and episode, `params={"gravity": velocirl.uniform(5, 15)}`.

The choice of randomized fields is compiled in; their bounds are not. An environment with randomized fields stores the
bounds in its record of parameters, next to each field. They are arrays of the fleet like any other, saved with it and
on every device, and other bounds compile nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.records import Record

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

UNIFORM, LOG_UNIFORM = "uniform", "log_uniform"
NUMBER = r"\s*([-+]?[\w.]+(?:[eE][-+]?\d+)?)\s*"
WRITTEN = re.compile(rf"\s*({UNIFORM}|{LOG_UNIFORM})\s*\({NUMBER},{NUMBER}\)\s*")
MOST_WHOLE = 2**31 - 1  # integers to choose from


@dataclass(frozen=True)
class Draw:
    """Distribution of numbers from `low` to `high`, both included; each environment samples it as an episode begins."""

    kind: str
    low: float
    high: float

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if isinstance(end, bool) or not isinstance(end, (int, float, np.number)) or not isfinite(end):
                raise ValueError(f"{self}: {end!r} is not a finite number")
        if self.low > self.high:
            raise ValueError(f"{self} is upside down: write {self.kind}({self.high!r}, {self.low!r})")
        if self.kind == LOG_UNIFORM and self.low <= 0:
            raise ValueError(f"{self}: a logarithm needs numbers above 0; write uniform, or a greater lower end")
        object.__setattr__(self, "low", plain_number(self.low))
        object.__setattr__(self, "high", plain_number(self.high))

    def __repr__(self) -> str:
        return f"{self.kind}({self.low!r}, {self.high!r})"


def uniform(low: float, high: float) -> Draw:
    """Return a uniform distribution from `low` to `high`, both included, sampled per environment and episode.

    Integer fields sample integers. `PPO("CartPole-v1", params={"gravity": uniform(5, 15)})`.
    """
    return Draw(UNIFORM, low, high)


def log_uniform(low: float, high: float) -> Draw:
    """Return a log-uniform distribution, sampled per environment and episode: for orders of magnitude.

    `log_uniform(0.1, 10)` is below 1 as often as above it.
    """
    return Draw(LOG_UNIFORM, low, high)


def plain_number(value: Any) -> float:
    """Return a number as a Python number, as in configurations."""
    return value.item() if isinstance(value, np.generic) else value


def as_draw(value: Any) -> Draw | None:
    """Return a parameter's distribution, given as an object or as text, "uniform(5, 15)"; None for other values."""
    if isinstance(value, Draw):
        return value
    if not isinstance(value, str):
        return None
    try:
        kind, *ends = WRITTEN.fullmatch(value).groups()  # pyright: ignore[reportOptionalMemberAccess]
        low, high = (int(end) if re.fullmatch(r"[-+]?\d+", end) else float(end) for end in ends)
    except (AttributeError, ValueError):
        raise ValueError(f"must be a number, uniform(low, high) or log_uniform(low, high), got {value!r}") from None
    return Draw(kind, low, high)


def is_draw(value: Any) -> bool:
    """Return whether a value is a distribution, as an object or as text."""
    return isinstance(value, Draw) or (isinstance(value, str) and WRITTEN.fullmatch(value) is not None)


def with_draws(environment: Environment, params: Mapping[str, Any] | None) -> Environment:
    """Return the environment with the parameters randomized that have a distribution in `params` or had one before."""
    asked = {name for name, value in (params or {}).items() if isinstance(value, (Draw, str))}
    drawn = tuple(name for name in environment.params.fields if name in asked or name in environment.drawn)
    return environment if drawn == environment.drawn else drawing(environment.plain or environment, drawn)


def drawing(environment: Environment, drawn: tuple[str, ...]) -> Environment:
    """Return a copy of an environment with randomized parameters."""
    twin = object.__new__(type(environment))
    vars(twin).update(vars(environment))
    vars(twin).update(params=DrawnRecord(environment, drawn), drawn=drawn, plain=environment)
    return twin


def draw_of(row: Any, name: str) -> Draw:
    """Return the distribution of a parameter in an environment's row of parameters."""
    return Draw(LOG_UNIFORM if row[is_log(name)] else UNIFORM, row[low_of(name)], row[high_of(name)])


class DrawnRecord(Record):
    """Record of parameters with some randomized: their bounds are stored in extra fields with reserved names."""

    def __init__(self, environment: Environment, drawn: tuple[str, ...]) -> None:
        own = environment.params
        bounds, kinds = dict(own.bounds), [(name, own.dtype[name]) for name in own.fields]
        for name in drawn:
            kind = own.dtype[name]
            if kind.shape:
                raise ValueError(
                    f"{environment.id}: {own.name}.{name} is an array of {kind.shape}; only single numbers are drawn"
                )
            kind = np.dtype(np.int8) if kind.kind == "b" else kind
            kinds += [(low_of(name), kind), (high_of(name), kind), (is_log(name), np.dtype(np.int8))]
            # Validates bounds from a file: samples between bounds that a field allows fit the field.
            limits = (0, 1) if own.dtype[name].kind == "b" else own.bounds.get(name)
            bounds |= {} if limits is None else {low_of(name): limits, high_of(name): limits}
        super().__init__(own.name, np.dtype(kinds, align=True), own.defaults, bounds)
        self.drawn, self._own = drawn, own

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the environment's author wrote."""
        return self._own.fields

    def fill(self, rows: NDArray[Any], values: Mapping[str, Any]) -> None:
        """Write values or distributions; a distribution keeps the present value until the next episode."""
        for name, value in values.items():
            draw = drawn_from(self, name, value)
            if draw is None:
                super().fill(rows, {name: value})
            if name not in self.drawn:
                continue
            if draw is None:
                low, high, logarithmic = rows[name], rows[name], False
            else:
                low, high, logarithmic = draw.low, draw.high, draw.kind == LOG_UNIFORM
            rows[low_of(name)], rows[high_of(name)], rows[is_log(name)] = low, high, logarithmic

    def extremes(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the rows with all randomized fields at their lower, then at their upper end."""
        ends = []
        for end_of in (low_of, high_of):
            ends.append(rows.copy())
            for name in self.drawn:
                ends[-1][name] = rows[end_of(name)]
        return ends


def drawn_from(record: Record, name: str, value: Any) -> Draw | None:
    """Return the distribution given for a field, or None for a value; raises ValueError if it does not fit."""
    try:
        draw = as_draw(value)
    except ValueError as error:
        raise ValueError(f"{record.name}.{name} {error}") from None
    if draw is None or name not in record.fields:  # unknown names raise elsewhere
        return None
    if name not in getattr(record, "drawn", ()):
        raise ValueError(f"{record.name}.{name} is not drawn in these copies: make them with params={{{name!r}: ...}}")
    kind = record.dtype[name]
    trial = np.zeros(1, record.dtype)
    for end in (draw.low, draw.high):
        Record.fill(record, trial, {name: end})
    if kind.kind != "f" and draw.high - draw.low >= MOST_WHOLE:
        raise ValueError(f"{record.name}.{name}: {draw} has more than {MOST_WHOLE:,} whole numbers")
    return draw


def low_of(name: str) -> str:
    """Return the name of the extra field that holds a field's lower bound."""
    return f"_{name}_low"


def high_of(name: str) -> str:
    """Return the name of the extra field that holds a field's upper bound."""
    return f"_{name}_high"


def is_log(name: str) -> str:
    """Return the name of the extra field that holds whether a field is log-uniform."""
    return f"_{name}_log"


# Scalar functions, which are compiled ---------------------------------------------------------------------------------


def drawing_reset(environment: Environment) -> Callable[..., Any]:
    """Make the `reset(state, params, rng)` that samples parameters before the environment's own reset."""
    reset = environment.reset
    for name in reversed(environment.drawn):
        draw = draw_real if environment.params.dtype[name].kind == "f" else draw_whole
        reset = _drawing_first(reset, draw, name, low_of(name), high_of(name), is_log(name))
    return reset


def _drawing_first(
    reset: Callable[..., Any], draw: Callable[..., Any], name: str, low: str, high: str, logarithmic: str
) -> Callable[..., Any]:
    def draw_and_reset(state, params, rng):
        params[name] = draw(rng, params[low], params[high], params[logarithmic])
        reset(state, params, rng)

    return draw_and_reset


def draw_real(rng, low, high, logarithmic):
    """Sample a real number between bounds, both included."""
    share = random.uniform(rng)
    value = low + (high - low) * share
    if logarithmic != 0:
        value = exp(log(low) + (log(high) - log(low)) * share)
    # In this form, rounding errors and even NaN end up between the bounds.
    value = value if value > low else low
    return value if value < high else high


def draw_whole(rng, low, high, logarithmic):
    """Sample an integer between bounds, both included."""
    first, last = int(low), int(high)
    if logarithmic != 0:
        above = float(last) + 1.0
        value = int(exp(log(float(first)) + (log(above) - log(float(first))) * random.uniform(rng)))
    else:
        value = int(random.integer(rng, first, last + 1))
    return min(max(value, first), last)
