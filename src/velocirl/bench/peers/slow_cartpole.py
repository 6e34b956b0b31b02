"""CartPole whose steps take time, as those of a simulator or a robot do; imports nothing of velocirl."""

from __future__ import annotations

import time
from typing import Any

import gymnasium


class SlowCartPole(gymnasium.Wrapper):
    """Gymnasium's CartPole, after a pause of so many seconds in each step."""

    def __init__(self, pause: float = 2e-3) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._pause = pause

    def step(self, action: Any) -> Any:
        """Pause, and step."""
        time.sleep(self._pause)
        return self.env.step(action)
