"""A Gymnasium environment that tells what happened in it, and mishaps on demand, for the tests of tabular learners."""

import os
import signal
import time
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

MOTOR, EXIT, HANG, NOT_A_NUMBER, OUTSIDE = range(1, 6)


class Wanderer(gymnasium.Env):
    """Observations of several parts, actions from -1 to 1, and ends of both kinds, all at random.

    `log` has a row for each step of all copies in this process: state, action, reward, next state, terminated,
    truncated, and what is legal next.
    """

    observation_space = spaces.Dict(
        floor=spaces.Discrete(3, start=-1), room=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2])])
    )
    action_space = spaces.Discrete(3, start=-1)
    log: ClassVar[list] = []
    seeds: ClassVar[list] = []
    steps = 0  # of all copies in this process

    def __init__(self, masked=0.0, mishap=0.0, at=0.0, pause=0.0):
        self.masked, self.mishap, self.at, self.pause = masked, mishap, at, pause

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.look()
        return self.observation, self.info

    def look(self):
        floor, *bits = (int(self.np_random.integers(n)) for n in (3, 2, 2, 2, 2))
        self.state = int("".join(map(str, bits)), 2) + 16 * floor
        self.observation = {"floor": floor - 1, "room": (np.array(bits[:2], np.int8), np.array(bits[2:]))}
        self.legal = np.array([1, *(self.np_random.random(2) < 0.5)], np.int8) if self.masked else np.ones(3, np.int8)
        self.info = {"action_mask": self.legal} if self.masked else {}

    def step(self, action):
        Wanderer.steps += 1
        time.sleep(self.pause * (1 + self.state % 3))  # so that copies do not go in step
        if not self.legal[action + 1]:
            raise ValueError(f"{action} is not legal")
        state, reward = self.state, float(self.np_random.integers(-3, 4))
        if self.mishap and self.steps == self.at:
            reward = self.go_wrong(reward)
        self.look()
        if self.mishap == OUTSIDE and self.steps == self.at:
            self.observation["floor"] = 2
        terminated, truncated = (self.np_random.random(2) < 0.1).tolist()
        self.log.append((state, int(action), reward, self.state, terminated, truncated, self.legal))
        return self.observation, reward, terminated, truncated, self.info

    def go_wrong(self, reward):
        if self.mishap == MOTOR:
            raise OSError("the motor is stuck")
        if self.mishap == EXIT:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mishap == HANG:
            time.sleep(1000)
        return float("nan") if self.mishap == NOT_A_NUMBER else reward


def register():
    """Make it known to Gymnasium for a while, with nothing told yet."""
    gymnasium.register("Wanderer-v0", entry_point=Wanderer)
    Wanderer.log.clear()
    Wanderer.seeds.clear()
    Wanderer.steps = 0
    yield
    gymnasium.registry.pop("Wanderer-v0")
