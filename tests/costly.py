"""A Gymnasium environment whose infos tell what its steps cost, for the tests of costs."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Costly(gymnasium.Env):
    """A step costs half of its number in the episode; the third is the last, and terminates where the action is 1."""

    observation_space, action_space = Box(-9, 9, (1,)), Box(-1, 1, (1,))
    tells = True
    step_number = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        last = self.step_number == 3
        info = {"cost": 0.5 * self.step_number} if self.tells else {}
        ends = bool(last and action[0] == 1), bool(last and action[0] != 1)
        return np.full(1, self.step_number, np.float32), 1.0, *ends, info


class Silent(Costly):
    tells = False


class Six:
    """The same as Safety-Gymnasium and OmniSafe have it."""

    def __init__(self):
        self.own = Costly()
        self.observation_space, self.action_space = self.own.observation_space, self.own.action_space

    def reset(self, *, seed=None, options=None):
        return self.own.reset(seed=seed)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.own.step(action)
        return observation, reward, info["cost"], terminated, truncated, {"where": "here"}

    def close(self):
        self.own.close()
