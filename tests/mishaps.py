"""Gymnasium environments with mishaps. Workers import this module, so that it is free of velocirl, and of numba."""

import os
import signal
import time
import uuid

import gymnasium
import numpy as np
from gymnasium import spaces


class Walker(gymnasium.Env):
    """A random walk with nested observations, action masks and infos of several kinds; it ends at random."""

    observation_space = spaces.Dict(
        steps=spaces.Box(0, 1000, (1,), np.float32), place=spaces.Tuple([spaces.Discrete(100), spaces.MultiBinary(3)])
    )
    action_space = spaces.Discrete(3)

    def observe(self):
        place = int(self.np_random.integers(100))
        observation = {"steps": [self.steps], "place": (place, np.array([place % 2, 0, 1], np.int8))}
        return observation, {"action_mask": np.array([1, place % 2, 1]), "place": place, "name": f"at {place}"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe()

    def step(self, action):
        self.steps += 1
        observation, info = self.observe()
        terminated, truncated = (self.np_random.random(2) < 0.1).tolist()
        return observation, float(action + self.np_random.random()), terminated, truncated, info


class Faulty(gymnasium.Env):
    """The observation counts the steps; 1 to 4 are mishaps, and 5 truncates the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0.0
        return np.array([self.steps]), {"pid": os.getpid()}

    def step(self, action):
        if action == 1:
            raise OSError("the motor is stuck")
        if action == 2:
            os._exit(7)
        if action == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == 4:
            time.sleep(1000)
        self.steps += 1
        return np.array([self.steps]), 1.0, False, action == 5, {}


class Sleepy(Faulty):
    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


class FailsAtReset(Faulty):
    def __init__(self, directory):
        self.directory = directory

    def reset(self, *, seed=None, options=None):
        if options == {"fail": True} and len(list(self.directory.iterdir())) < 2:
            (self.directory / uuid.uuid4().hex).touch()
            os._exit(1)
        return super().reset(seed=seed, options=options)[0] + seed % 1000, {}


class Talker(Faulty):
    observation_space = spaces.Text(3)
