"""Environments of Gymnasium's for the tests of collectors: they count, show pictures, take time, or fail when told."""

import os
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

FAILS = {
    "raise": lambda: (_ for _ in ()).throw(OSError("the arm is stuck")),
    "exit": lambda: sys.exit(3),
    "kill": lambda: os.kill(os.getpid(), 9),
    "hang": lambda: time.sleep(1000),
}


class Counting(gymnasium.Env):
    """Shows the index of the coming step, which pays that index; ends after 10 steps, or is cut off after 7.

    With a `file`, the first to reach step `at` of an episode after that file is there removes it, and fails.
    """

    observation_space = Box(0, np.inf, (1,))
    action_space = Discrete(2)

    def __init__(self, file="", fail="", at=3, pause=0.0):
        self.count, self.cut, self.file, self.fail, self.at, self.pause = 0, False, file, fail, at, pause

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.cut = 0, bool(self.np_random.integers(2))
        return self.seen(), {}

    def step(self, action):
        time.sleep(self.pause)
        if self.count == self.at and self.file and self._first():
            FAILS[self.fail]()
        reward = float(self.count)
        self.count += 1
        return self.seen(), reward, self.count == 10, self.cut and self.count == 7, {}

    def seen(self):
        return np.array([self.count], np.float32)

    def _first(self):
        try:
            Path(self.file).unlink()
        except FileNotFoundError:
            return False
        return True


class Showing(Counting):
    """The same in pictures whose pixels all have the index of the step."""

    observation_space = Box(0, 255, (4, 3), np.uint8)

    def seen(self):
        return np.full((4, 3), self.count, np.uint8)


def gone(processes, seconds=10.0):
    """Whether these processes are no more, within so many seconds."""
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        if not any(Path(f"/proc/{one}").exists() for one in processes):
            return True
        time.sleep(0.02)
    return False
