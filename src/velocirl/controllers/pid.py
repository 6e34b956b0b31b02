"""PID control: one loop per actuator, single or cascaded, with feed-forward and gain scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller, by_actuator, within
from velocirl.controllers.layout import Layout
from velocirl.controllers.loops import Loop, Terms, respond

if TYPE_CHECKING:
    from velocirl.controllers.tuning import Validation


class PID(Controller):
    """PID control of one or several loops, with `time_step` seconds between two actions.

    The derivative acts on the measurement, so a new setpoint causes no kick. A loop at a limit stops integrating toward
    that limit (anti-windup). Actuators without a loop stay at their `bias`. After `tune`, `validation` holds the
    results of fresh episodes.
    """

    validation: Validation | None = None

    def __init__(self, *loops: Loop, time_step: float, bias: Mapping[str | int, float] | None = None) -> None:
        if not loops:
            raise ValueError("a PID needs a loop: PID(Loop(signal, actuator, setpoint, gain), time_step=1.0)")
        if not (isfinite(time_step) and time_step > 0.0):
            raise ValueError(f"time_step must be above 0 seconds, got {time_step}")
        for loop in loops:
            if loop.actuator is None:
                raise ValueError(f"{loop._title}: only the outer loop of a cascade has no actuator: name one")
        self.loops, self.time_step, self.bias = loops, float(time_step), dict(bias or {})
        # All loops; an outer loop of a cascade directly precedes the loop whose setpoint it computes.
        self.stages = tuple(stage for loop in loops for stage in loop.chain)

    def __repr__(self) -> str:
        rest = f", bias={self.bias}" if self.bias else ""
        return f"PID({', '.join(map(repr, self.loops))}, time_step={self.time_step}{rest})"

    def settle(self, layout: Layout, environment: Any) -> None:  # noqa: ARG002 - as others need it
        """Find the signals and actuators of all loops."""
        layout.require_numbers("PID")
        if layout.time_step is not None and not isclose(layout.time_step, self.time_step, rel_tol=1e-5):
            raise ValueError(
                f"time_step={self.time_step:g} of this PID is not the {layout.time_step:g} s between two actions of"
                f" {layout.id}: give time_step={layout.time_step:g} and tune it for that"
            )
        stages = self.stages
        self._signals = np.array([layout.signal(stage.signal) for stage in stages])
        self._driving = np.array([k for k, stage in enumerate(stages) if stage.actuator is not None])
        self._actuators = np.array([layout.actuator(one.actuator) for one in stages if one.actuator is not None])
        if len(set(self._actuators.tolist())) < len(self.loops):
            raise ValueError(f"{layout.id}: two loops of this PID move the same actuator")
        self._resting = by_actuator(layout, self.bias, "PID", set(self._actuators.tolist()))
        self._carriers = [(k, layout.signal(o.setpoint)) for k, o in enumerate(stages) if isinstance(o.setpoint, str)]
        fixed = [one.setpoint if isinstance(one.setpoint, (int, float)) else 0.0 for one in stages]
        self._setpoints = np.array(fixed, np.float64)
        self._forward = [
            (k, layout.signal(name), factor)
            for k, one in enumerate(stages)
            for name, factor in one.feed_forward.items()
        ]
        self._schedules = [
            (k, layout.signal(one.schedule[0]), np.array(one.schedule[1], np.float64))
            for k, one in enumerate(stages)
            if one.schedule is not None
        ]
        # Loops of equal depth respond together: none of their setpoints is another's output.
        depths = np.array([len(list(stage.chain)) - 1 for stage in stages])
        self._rounds = [np.flatnonzero(depths == depth) for depth in range(depths.max() + 1)]
        columns = {name: np.array([getattr(one, name) for one in stages], np.float64) for name in Terms._fields}
        low, high = self._limits(layout)
        columns["low"], columns["high"] = np.maximum(columns["low"], low), np.minimum(columns["high"], high)
        self.terms = Terms(**columns)

    def _limits(self, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bounds of each loop's output: of its actuator, or of the signal that an outer loop sets."""
        space: Any = layout.observation
        low, high = np.full(len(self.stages), -np.inf), np.full(len(self.stages), np.inf)
        low[self._driving], high[self._driving] = (limits[self._actuators] for limits in layout.bounds)
        for k, stage in enumerate(self.stages):
            if stage.actuator is None:
                inner = self._signals[k + 1]
                low[k], high[k] = space.low[inner], space.high[inner]
        return low, high

    def act(
        self,
        observations: Any,
        state: Any,
        starts: NDArray[np.bool_],
        masks: Any = None,  # noqa: ARG002
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Compute the outputs of all loops; the state has shape (environments, loops, 2)."""
        _, signals = self.read(observations)
        if np.isnan(signals).any():
            copy, loop = np.argwhere(np.isnan(signals))[0]
            raise ValueError(f"{self.layout.id}: the signal {self.stages[loop].signal!r} of copy {copy} is NaN")
        return self.control(self.terms, observations, state, starts)

    def control(
        self, terms: Terms, observations: Any, state: NDArray[np.float64] | None, starts: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Compute actions with the given terms of all loops."""
        setpoints, signals = self.read(observations)
        terms = self._adapted(terms, np.asarray(observations, np.float64))
        outputs, after = np.zeros(signals.shape), np.zeros((*signals.shape, 2))
        for depth, places in enumerate(self._rounds):
            if depth:
                setpoints[:, places] = outputs[:, places - 1]
            before = None if state is None else state[:, places]
            outputs[:, places], after[:, places] = respond(
                terms.at(places), self.time_step, setpoints[:, places], signals[:, places], before, starts
            )
        actions = np.tile(self._resting, (len(signals), 1))
        actions[:, self._actuators] = outputs[:, self._driving]
        return within(self.layout, actions), after

    def _adapted(self, terms: Terms, seen: NDArray[np.float64]) -> Terms:
        """Return terms with feed-forward added to the bias and gains scheduled, (environments, loops)."""
        if not (self._forward or self._schedules):
            return terms
        shape = (len(seen), len(self.stages))
        gain, bias = (np.broadcast_to(column, shape).copy() for column in (terms.gain, terms.bias))
        for loop, signal, factor in self._forward:
            bias[:, loop] += factor * seen[:, signal]
        for loop, signal, table in self._schedules:
            gain[:, loop] *= np.interp(seen[:, signal], table[:, 0], table[:, 1])
        return terms._replace(gain=gain, bias=bias)

    def tune(self, environment: Any, **options: Any) -> PID:
        """Return a PID with the same loops and better gains and times for an environment, see `tuning.tuned`."""
        from velocirl.controllers.tuning import tuned  # which needs fleets

        return tuned(self, environment, **options)

    def read(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each loop's setpoint and signal, (environments, loops); setpoints from an outer loop are 0."""
        seen = np.asarray(observations, np.float64)
        signals = seen[:, self._signals]
        setpoints = np.broadcast_to(self._setpoints, signals.shape).copy()
        for loop, place in self._carriers:
            setpoints[:, loop] = seen[:, place]
        return setpoints, signals
