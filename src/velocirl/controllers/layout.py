"""Layout of an environment for controllers: indices of signals in observations and of actuators in actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.engine.operating import action_seconds, seconds_by_row


@dataclass(frozen=True)
class Layout:
    """Spaces of an environment, with the names of their elements."""

    id: str
    observation: gymnasium.Space[Any]
    action: gymnasium.Space[Any]
    signals: tuple[str, ...] = ()  # names of the observation's elements, if they have names
    actuators: tuple[str, ...] = ()
    time_step: float | None = None  # s between two actions, if the environment declares it

    def require_numbers(self, controller: str) -> None:
        """Raise unless observations and actions are flat Boxes."""
        for name, space in (("observations", self.observation), ("actions", self.action)):
            if not isinstance(space, Box) or len(space.shape) != 1:
                raise ValueError(f"a {controller} needs {name} that are a flat Box; those of {self.id} are {space}")

    def signal(self, name: str | int) -> int:
        """Return the index of a signal in an observation."""
        return self._place("signal", name, self.signals, (self.observation.shape or (0,))[0])

    def actuator(self, name: str | int) -> int:
        """Return the index of an actuator in an action."""
        return self._place("actuator", name, self.actuators, (self.action.shape or (0,))[0])

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds of actions."""
        space: Any = self.action
        return space.low.astype(np.float64), space.high.astype(np.float64)

    def _place(self, kind: str, name: str | int, names: tuple[str, ...], count: int) -> int:
        if isinstance(name, str):
            if name not in names:
                raise ValueError(f"{self.id} has no {kind} {name!r}{nearest(name, names)}")
            return names.index(name)
        if not 0 <= name < count:
            raise ValueError(f"{self.id} has no {kind} number {name}: they are 0 to {count - 1}")
        return name


def layout_of(environment: Any) -> Layout:
    """Return the layout of an id, an Environment, or any object with spaces, such as a Gymnasium environment."""
    native = native_of(environment)
    if native is not None:
        signals: Mapping[str, str] = getattr(native, "signals", {})
        actuators: Mapping[str, str] = getattr(native, "actuators", {})
        seconds = _seconds_between(environment, native)
        return Layout(native.id, native.observation, native.action, tuple(signals), tuple(actuators), seconds)
    for prefix in ("single_", ""):
        observation = getattr(environment, f"{prefix}observation_space", None)
        action = getattr(environment, f"{prefix}action_space", None)
        if observation is not None and action is not None:
            return Layout(getattr(environment, "id", None) or type(environment).__name__, observation, action)
    raise TypeError(f"a {type(environment).__name__} is no environment: give an id, an Environment or a VectorEnv")


def _seconds_between(environment: Any, native: Environment) -> float | None:
    """Return the time step of an environment, or of environments with their own parameters; None if they differ."""
    copies = getattr(environment, "unwrapped", environment)
    if not hasattr(copies, "read"):
        return action_seconds(native)
    seconds = seconds_by_row(native, copies.read(("params",))["params"])
    return None if seconds is None or len(set(seconds)) > 1 else float(seconds[0])


def native_of(environment: Any) -> Environment | None:
    """Return the compiled environment behind an id, an Environment or a vector environment, or None."""
    if isinstance(environment, (str, Environment)):
        return registry.find(environment)
    unwrapped = getattr(environment, "unwrapped", environment)
    native = getattr(unwrapped, "environment", None)
    return native if isinstance(native, Environment) else None
