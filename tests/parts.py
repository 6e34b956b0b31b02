"""A Gymnasium environment whose observations have parts, for the tests of structured observations."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Parts(gymnasium.Env):
    """Observations of two parts; the symbol says what to do and pays 1, for 8 steps."""

    observation_space = gymnasium.spaces.Dict({"noise": Box(-1, 1, (2,)), "symbol": Discrete(3)})
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def _look(self):
        self.symbol = int(self.np_random.integers(3))
        return {"noise": self.np_random.uniform(-1, 1, 2).astype(np.float32), "symbol": self.symbol}

    def step(self, action):
        reward, self.time = float(action == self.symbol), self.time + 1
        return self._look(), reward, self.time == 8, False, {}
