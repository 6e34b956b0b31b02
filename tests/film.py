"""A game of pictures that nobody could guess, each another, with lives, for tests of preprocessing."""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Film(gymnasium.Env):
    """Shows pictures by its seed and its action; a life lasts `life` frames, and all lives are the game."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, shape=(30, 40, 3), life=10, lives=3, meanings=("NOOP", "FIRE"), render_mode=None):
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Discrete(2)
        self.life, self.most, self.meanings, self.render_mode = life, lives, meanings, render_mode
        self._screen = np.zeros(shape, np.uint8)

    def get_action_meanings(self):
        return list(self.meanings)

    def modules(self):
        return set(sys.modules)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._picture(), self._info()

    def step(self, action):
        self.time += 1
        reward = 0.5 * (self.time % 5) - 1.0 + float(action)
        return self._picture(), reward, self.time >= self.life * self.most, False, self._info()

    def render(self):
        return self._screen

    def _picture(self):
        self._screen = self.np_random.integers(0, 256, self._screen.shape, np.uint8)
        return self._screen

    def _info(self):
        return {"lives": self.most - self.time // self.life, "time": self.time}
