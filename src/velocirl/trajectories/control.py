"""Control performance of trajectories: set points, tracking errors, actuator travel, distance from limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers import PID
from velocirl.engine.environment import Environment
from velocirl.trajectories.trajectory import Quantity, Trajectory

IAE, OVERSHOOT, SETTLING, TRAVEL, CLOSEST = "iae", "overshoot", "settling_time", "travel", "closest_approach"
BAND, FLOOR = 0.05, 0.002  # of the initial error, or of the set point: within the wider of both a signal has settled
STEP = 1e-3  # of its size: a set point that moves less is not a new one
MEANING = {
    IAE: "integral of the absolute error between a signal and its set point, over an episode",
    OVERSHOOT: "furthest beyond the set point, on the other side than the signal began, after it was crossed",
    SETTLING: "time until a signal stays within 5% of its first error, or 0.2% of its set point; median of episodes",
    TRAVEL: "sum of the moves of an actuator in an episode",
    CLOSEST: "least distance from a limit in any episode, negative beyond it, in the unit of the constraint",
}


def set_points_of(environment: Environment | None, signals: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return the set points of the environment's own PID controller, by the names of the signals.

    For a cascade it is the outer loop's set point. A number is the shipped controller's target. A signal, such as the
    target of a grade, is the target of every policy.
    """
    if environment is None or not isinstance(environment.controller, PID):
        return {}
    names, found = list(signals), {}
    for loop in environment.controller.loops:
        outer = next(loop.chain)
        signal = outer.signal if isinstance(outer.signal, str) else names[outer.signal]
        if signal not in signals or signal in found or isinstance(outer.setpoint, type(outer)):
            continue
        values, unit = signals[signal]
        if isinstance(outer.setpoint, str):
            found[signal] = Quantity(signals[outer.setpoint].values, unit)
        else:
            found[signal] = Quantity(np.full(len(values), outer.setpoint, np.float32), unit)
    return found


def control_figures(trajectory: Trajectory) -> dict[str, NDArray[np.float64]]:
    """Return the control metrics of each episode, by kind and name: iae/level, travel/valve, closest_approach/level.

    Times and integrals are in the trajectory's unit of time.
    """
    episodes = list(trajectory.each())
    found = {}
    for name in trajectory.set_points:
        rows = np.array([_errors(one, name) for one in episodes])
        found |= {f"{kind}/{name}": rows[:, k] for k, kind in enumerate((IAE, OVERSHOOT, SETTLING))}
    for name in trajectory.actuators:
        moves = [np.abs(np.diff(np.asarray(one.actuators[name].values, np.float64)[1:])).sum() for one in episodes]
        found[f"{TRAVEL}/{name}"] = np.array(moves, np.float64)
    for name, trace in trajectory.constraints.items():
        found[f"{CLOSEST}/{name}"] = np.minimum.reduceat(trace.distance.astype(np.float64), trajectory.first)
    return found


def _errors(episode: Trajectory, name: str) -> tuple[float, float, float]:
    """Return IAE, overshoot and settling time of a signal in one episode."""
    time = np.asarray(episode.time, np.float64)
    target = np.asarray(episode.set_points[name].values, np.float64)
    error = target - np.asarray(episode.signals[name].values, np.float64)
    iae = float(np.sum(np.abs(error[1:]) * np.diff(time)))
    steps = np.flatnonzero(np.abs(np.diff(target)) > STEP * np.maximum(np.abs(target[1:]), 1e-9)) + 1
    overshoot, settling = 0.0, 0.0
    for begin, end in zip([0, *steps], [*steps, len(error)], strict=True):
        part = error[begin:end]
        overshoot = max(overshoot, float(np.max(-np.sign(part[0]) * part, initial=0.0)))
        outside = np.flatnonzero(np.abs(part) > np.maximum(BAND * abs(part[0]), FLOOR * np.abs(target[begin:end])))
        if len(outside):
            last = outside[-1]
            settled = last + 1 < len(part)
            settling = max(settling, float(time[begin + last + 1] - time[begin]) if settled else np.inf)
    return iae, overshoot, settling
