"""CartPole whose steps take time, like a simulator's or a robot's; imports nothing of velocirl."""

from __future__ import annotations

import time
from typing import Any

import gymnasium


class SlowCartPole(gymnasium.Wrapper):
    """Gymnasium's CartPole with a pause of `pause` seconds in each step."""

    def __init__(self, pause: float = 2e-3) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._pause = pause

    def step(self, action: Any) -> Any:
        """Pause, then step."""
        time.sleep(self._pause)
        return self.env.step(action)
