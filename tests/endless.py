"""Gymnasium environment whose episodes never end."""

import gymnasium
from gymnasium.spaces import Discrete


class Endless(gymnasium.Env):
    observation_space, action_space = Discrete(3), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, 1.0, False, False, {}
