"""PID control: one loop for each actuator, from a measured signal to its setpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller, by_actuator, within
from velocirl.controllers.layout import Layout

INTEGRAL, FILTERED = 0, 1  # what is remembered of a loop: the sum of its errors, and what its derivative saw last


@dataclass(frozen=True)
class Loop:
    """One PID loop: the actuator that it moves, and the signal that it holds at its setpoint.

        e = setpoint - signal
        output = bias + gain * (e + integral(e) / integral_time - derivative_time * d(signal)/dt)

    between `low` and `high`, where nothing else is said the bounds of the action. A signal or an actuator is named, or
    counted from 0; a setpoint is a number, or the name of a signal that carries it. Times are in seconds: without an
    `integral_time` there is no integral; `filter_time` smooths the signal whose derivative is taken.
    """

    signal: str | int
    actuator: str | int
    setpoint: float | str
    gain: float
    integral_time: float = inf
    derivative_time: float = 0.0
    bias: float = 0.0
    low: float = -inf
    high: float = inf
    filter_time: float = 0.0

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

    @property
    def _title(self) -> str:
        return f"the loop from {self.signal!r} to {self.actuator!r}"


class Terms(NamedTuple):
    """The numbers of all loops, (loops,) or, where copies have controllers of their own, (copies, loops)."""

    gain: NDArray[np.float64]
    integral_time: NDArray[np.float64]
    derivative_time: NDArray[np.float64]
    filter_time: NDArray[np.float64]
    bias: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class PID(Controller):
    """PID control of one or several loops, `time_step` seconds between two actions.

    The derivative is that of the measurement, so that a new setpoint gives no kick. A loop at a limit integrates no
    further in the direction of that limit (anti-windup). Actuators without a loop stay at their `bias`.
    """

    def __init__(self, *loops: Loop, time_step: float, bias: Mapping[str | int, float] | None = None) -> None:
        if not loops:
            raise ValueError("a PID needs a loop: PID(Loop(signal, actuator, setpoint, gain), time_step=1.0)")
        if not (isfinite(time_step) and time_step > 0.0):
            raise ValueError(f"time_step must be above 0 seconds, got {time_step}")
        self.loops, self.time_step, self.bias = loops, float(time_step), dict(bias or {})

    def __repr__(self) -> str:
        rest = f", bias={self.bias}" if self.bias else ""
        return f"PID({', '.join(map(repr, self.loops))}, time_step={self.time_step}{rest})"

    def settle(self, layout: Layout, environment: Any) -> None:  # noqa: ARG002 - as others need it
        """Find the signals and actuators of all loops."""
        layout.require_numbers("PID")
        self._signals = np.array([layout.signal(loop.signal) for loop in self.loops])
        self._actuators = np.array([layout.actuator(loop.actuator) for loop in self.loops])
        if len(set(self._actuators.tolist())) < len(self.loops):
            raise ValueError(f"{layout.id}: two loops of this PID move the same actuator")
        self._resting = by_actuator(layout, self.bias, "PID", set(self._actuators.tolist()))
        self._carriers = [
            (k, layout.signal(o.setpoint)) for k, o in enumerate(self.loops) if isinstance(o.setpoint, str)
        ]
        fixed = [0.0 if isinstance(loop.setpoint, str) else loop.setpoint for loop in self.loops]
        self._setpoints = np.array(fixed, np.float64)
        low, high = (limits[self._actuators] for limits in layout.bounds)
        columns = {name: np.array([getattr(loop, name) for loop in self.loops], np.float64) for name in Terms._fields}
        columns["low"], columns["high"] = np.maximum(columns["low"], low), np.minimum(columns["high"], high)
        self.terms = Terms(**columns)

    def act(
        self,
        observations: Any,
        state: Any,
        starts: NDArray[np.bool_],
        masks: Any = None,  # noqa: ARG002
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The outputs of all loops; remembered is (copies, loops, 2)."""
        _, signals = self.read(observations)
        if np.isnan(signals).any():
            copy, loop = np.argwhere(np.isnan(signals))[0]
            raise ValueError(f"{self.layout.id}: the signal {self.loops[loop].signal!r} of copy {copy} is NaN")
        return self.control(self.terms, observations, state, starts)

    def control(
        self, terms: Terms, observations: Any, state: NDArray[np.float64] | None, starts: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The same with other numbers than its own."""
        setpoints, signals = self.read(observations)
        outputs, state = respond(terms, self.time_step, setpoints, signals, state, starts)
        actions = np.tile(self._resting, (len(signals), 1))
        actions[:, self._actuators] = outputs
        return within(self.layout, actions), state

    def tune(self, environment: Any, **options: Any) -> PID:
        """The same loops with gains and times that are better in an environment, see `tuning.tuned`."""
        from velocirl.controllers.tuning import tuned  # which needs fleets

        return tuned(self, environment, **options)

    def read(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The setpoint and the signal of each loop of each copy, (copies, loops)."""
        seen = np.asarray(observations, np.float64)
        signals = seen[:, self._signals]
        setpoints = np.broadcast_to(self._setpoints, signals.shape).copy()
        for loop, place in self._carriers:
            setpoints[:, loop] = seen[:, place]
        return setpoints, signals


def respond(
    terms: Terms,
    time_step: float,
    setpoints: NDArray[np.float64],  # (copies, loops)
    signals: NDArray[np.float64],  # (copies, loops)
    state: NDArray[np.float64] | None,  # (copies, loops, 2)
    starts: NDArray[np.bool_],  # (copies,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The outputs of loops and what they remember; where an episode starts, nothing is remembered of another."""
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
