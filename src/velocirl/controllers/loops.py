"""PID loops: declaration of one loop, the terms of several, and their response to signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

INTEGRAL, FILTERED = 0, 1  # state of a loop: the integral of its errors, and its last filtered signal
Table = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Loop:
    """One PID loop: the actuator that it moves, and the signal that it holds at its setpoint.

        e = setpoint - signal
        output = bias + forward + gain * (e + integral(e) / integral_time - derivative_time * d(signal)/dt)

    The output is limited to `low` and `high`, by default the bounds of the action. Signals and actuators are passed by
    name or by index from 0. A setpoint is a number, or the name of a signal that carries it. Times are in seconds.
    Without an `integral_time` there is no integral term; `filter_time` smooths the signal before its derivative is
    taken.

    Cascade: in `setpoint=Loop("temperature", None, 350.0, gain=2.0)` an outer loop without an actuator computes the
    setpoint; its output is limited to the inner signal's range. Feed-forward: `feed_forward={"inflow": 0.5}` adds half
    of a signal. Gain scheduling: `schedule=("level", [(0.5, 2.0), (1.5, 0.8)])` multiplies the gain by a factor,
    interpolated linearly between the given values of a signal.
    """

    signal: str | int
    actuator: str | int | None
    setpoint: float | str | Loop
    gain: float
    integral_time: float = inf
    derivative_time: float = 0.0
    bias: float = 0.0
    low: float = -inf
    high: float = inf
    filter_time: float = 0.0
    feed_forward: Mapping[str | int, float] = field(default_factory=dict)
    schedule: tuple[str | int, Table] | None = None

    def __post_init__(self) -> None:
        for name in ("gain", "derivative_time", "bias", "filter_time"):
            if not isfinite(getattr(self, name)):
                raise ValueError(f"{self._title}: {name} must be a finite number, got {getattr(self, name)}")
        if not self.integral_time > 0.0:
            raise ValueError(f"{self._title}: integral_time must be above 0, got {self.integral_time}")
        for name in ("derivative_time", "filter_time"):
            if getattr(self, name) < 0.0:
                raise ValueError(f"{self._title}: {name} must not be negative, got {getattr(self, name)}")
        if not self.low < self.high:
            raise ValueError(f"{self._title}: low must be below high, got {self.low} and {self.high}")
        if isinstance(self.setpoint, Loop) and self.setpoint.actuator is not None:
            raise ValueError(f"{self._title}: actuator={self.setpoint.actuator!r} of its outer loop: make it None")
        for name, factor in self.feed_forward.items():
            if not isfinite(factor):
                raise ValueError(f"{self._title}: feed_forward of {name!r} must be a finite number, got {factor}")
        if self.schedule is not None:
            self._check_schedule(self.schedule[1])

    def _check_schedule(self, table: Table) -> None:
        rows = np.array(table, np.float64)
        if rows.ndim != 2 or rows.shape[1] != 2 or not np.isfinite(rows).all():
            raise ValueError(f"{self._title}: schedule must be (signal, [(value, factor), ...]), got {self.schedule}")
        if (np.diff(rows[:, 0]) <= 0.0).any() or (rows[:, 1] <= 0.0).any():
            raise ValueError(f"{self._title}: schedule needs ascending values and factors above 0, got {table}")

    @property
    def chain(self) -> Iterator[Loop]:
        """Loops of a cascade, from the outermost to this one."""
        if isinstance(self.setpoint, Loop):
            yield from self.setpoint.chain
        yield self

    def with_numbers(self, numbers: Sequence[Mapping[str, float]]) -> Loop:
        """Return the cascade with other numbers, one mapping for each loop of the chain."""
        *outer, own = numbers
        changed = replace(self, **own)  # pyright: ignore[reportArgumentType]
        return (
            replace(changed, setpoint=self.setpoint.with_numbers(outer))
            if outer and isinstance(self.setpoint, Loop)
            else changed
        )

    @property
    def _title(self) -> str:
        return f"the loop from {self.signal!r} to {self.actuator!r}"


class Terms(NamedTuple):
    """Terms of all loops, shape (loops,), or (environments, loops) if environments have their own controllers."""

    gain: NDArray[np.float64]
    integral_time: NDArray[np.float64]
    derivative_time: NDArray[np.float64]
    filter_time: NDArray[np.float64]
    bias: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def at(self, places: NDArray[np.int64]) -> Terms:
        """Return the terms of the loops at `places`."""
        return Terms(*(column[..., places] for column in self))


def respond(
    terms: Terms,
    time_step: float,
    setpoints: NDArray[np.float64],  # (environments, loops)
    signals: NDArray[np.float64],  # (environments, loops)
    state: NDArray[np.float64] | None,  # (environments, loops, 2)
    starts: NDArray[np.bool_],  # (environments,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the loops' outputs and their next state; the state is reset where an episode starts."""
    fresh = np.stack([np.zeros_like(signals), signals], axis=-1)
    before = fresh if state is None else np.where(starts[:, None, None], fresh, state)
    errors = setpoints - signals
    share = time_step / (time_step + terms.filter_time)
    filtered = before[..., FILTERED] + share * (signals - before[..., FILTERED])
    rate = (filtered - before[..., FILTERED]) / time_step
    prompt = terms.bias + terms.gain * (errors - terms.derivative_time * rate)

    def total(integral: NDArray[np.float64]) -> NDArray[np.float64]:
        return prompt + terms.gain * integral / terms.integral_time

    grown = before[..., INTEGRAL] + errors * time_step
    wanted, push = total(grown), terms.gain * errors
    winds_up = ((wanted > terms.high) & (push > 0.0)) | ((wanted < terms.low) & (push < 0.0))
    integral = np.where(winds_up, before[..., INTEGRAL], grown)
    outputs = np.clip(total(integral), terms.low, terms.high)
    return outputs, np.stack([integral, filtered], axis=-1)
