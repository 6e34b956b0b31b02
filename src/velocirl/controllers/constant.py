"""Controller with a constant action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller, batch_size, by_actuator
from velocirl.controllers.layout import Layout


class Constant(Controller):
    """Constant action: passed as it is or by actuator names; by default the middle of the action bounds."""

    def __init__(self, action: Any = None) -> None:
        self._given = action

    def __repr__(self) -> str:
        return f"Constant({'' if self._given is None else self._given})"

    def settle(self, layout: Layout, environment: Any) -> None:  # noqa: ARG002 - as others need it
        """Resolve the action in the action space."""
        space = layout.action
        if isinstance(self._given, Mapping) and isinstance(space, Box):
            self._action = by_actuator(layout, dict(self._given), "Constant", set()).astype(space.dtype)
        elif self._given is not None:
            self._action = np.asarray(self._given, space.dtype)
        elif isinstance(space, Box) and space.is_bounded():
            self._action = ((space.low + space.high) / 2.0).astype(space.dtype)
        else:
            raise ValueError(f"say which action of {layout.id} is meant: Constant(action); its actions are {space}")
        if not space.contains(self._action if self._action.ndim else self._action[()]):
            raise ValueError(f"{layout.id}: {self._given} is not an action; they are {space}")

    def act(self, observations: Any, state: Any, starts: NDArray[np.bool_], masks: Any) -> tuple[Any, None]:  # noqa: ARG002
        """Repeat the action for each environment."""
        return np.repeat(self._action[None], batch_size(self.layout.observation, observations) or 1, axis=0), None
