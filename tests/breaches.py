"""Gymnasium environments that break the contract, one way each. Free of velocirl, since workers import them."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

OBSERVATION = np.zeros(2, np.float32)


class Sound(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return OBSERVATION, {}

    def step(self, action):
        return OBSERVATION, 1.0, False, self.np_random.random() < 0.1, {}


class FourValues(Sound):
    def step(self, action):
        return OBSERVATION, 1.0, False, {}


class NoSeed(Sound):
    def reset(self):
        return OBSERVATION, {}


class OnlyObservation(Sound):
    def reset(self, *, seed=None, options=None):
        return OBSERVATION


class WrongShape(Sound):
    def step(self, action):
        return np.zeros(3, np.float32), 1.0, False, False, {}


class Broadcast(Sound):
    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


class WrongType(Sound):
    observation_space = Box(0, 255, (2,), np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.full(2, 0.5), {}


class OutOfSpace(Sound):
    def step(self, action):
        return np.array([0.0, 2.5], np.float32), 1.0, False, False, {}


class NotFinite(Sound):
    def step(self, action):
        return np.array([np.nan, 0.0], np.float32), 1.0, False, False, {}


class NoneReward(Sound):
    def step(self, action):
        return OBSERVATION, None, False, False, {}


class TextReward(Sound):
    def step(self, action):
        return OBSERVATION, "1.0", False, False, {}


class ArrayReward(Sound):
    def step(self, action):
        return OBSERVATION, np.ones(1), False, False, {}


class NanReward(Sound):
    def step(self, action):
        return OBSERVATION, float("nan"), False, False, {}


class NoFlag(Sound):
    def step(self, action):
        return OBSERVATION, 1.0, None, False, {}


class NoInfo(Sound):
    def step(self, action):
        return OBSERVATION, 1.0, False, False, None


class Nothing(Sound):
    def step(self, action):
        pass


class Raises(Sound):
    def step(self, action):
        raise KeyError("the user's own")


BREACHES = [  # class, function, what is said, words of the line that is named
    (FourValues, "step", r"returns 4 values, as in old versions of Gym .*; write `return observation, rew", "return"),
    (NoSeed, "reset", r"takes no seed; write `def reset\(self, \*, seed=None, options=None\)`", "def reset(self)"),
    (OnlyObservation, "reset", "returns only an observation; write `return observation, info`", "return OBSERVATION"),
    (WrongShape, "step", r"returns observation of shape \(3,\); its space has the shape \(2,\)", "return np.zeros(3"),
    (Broadcast, "step", r"returns observation of shape \(1,\); its space has the shape \(2,\)", "return np.zeros(1"),
    (WrongType, "reset", "returns observation of float64; its space has uint8: return obs", "return np.full"),
    (OutOfSpace, "step", r"returns 2\.5 in observation\[1\], whose space goes from -1\.0 to 1", "return np.array([0"),
    (NotFinite, "step", r"returns nan in observation\[0\]; it must be finite", "return np.array([np.nan"),
    (NoneReward, "step", "returns the reward None; return a number", "return OBSERVATION, None"),
    (TextReward, "step", r"returns the reward '1\.0'; return a number", 'return OBSERVATION, "1.0"'),
    (ArrayReward, "step", r"returns the reward array\(\[1\.\]\); return a number", "return OBSERVATION, np.ones"),
    (NanReward, "step", "returns the reward nan; a reward must be finite", "return OBSERVATION, float"),
    (NoFlag, "step", "returns terminated as None; return a bool", "return OBSERVATION, 1.0, None"),
    (NoInfo, "step", r"returns info as None; return a dict, such as \{\}", "return OBSERVATION, 1.0, False, False, N"),
    (Nothing, "step", "returns None; write `return observation, reward, terminated, truncated, info`", "pass"),
]  # fmt: skip


class Late(Sound):
    """Breaks the contract after the steps that are checked."""

    def __init__(self, fault):
        self.fault, self.steps = fault, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return OBSERVATION, {}

    def step(self, action):
        self.steps += 1
        if self.steps < 50:
            return OBSERVATION, 1.0, False, False, {}
        return self.fault
