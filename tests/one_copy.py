"""One copy of an environment in plain Python, whose state a test may read and write."""

import numpy as np

from velocirl.engine import random
from velocirl.engine.records import with_attributes


class OneCopy:
    """A copy that has just begun; `params` are set as they are, beyond their bounds if need be."""

    def __init__(self, environment, seed=0, **params):
        self.environment = environment
        self.rng = random.streams(seed, 1)[0]
        self.params = with_attributes(environment.params.rows(1))[0]
        self.state = with_attributes(environment.state.rows(1))[0]
        for name, value in params.items():
            setattr(self.params, name, value)
        environment.reset(self.state, self.params, self.rng)

    def write(self, **fields):
        for name, value in fields.items():
            if np.ndim(value) or getattr(self.state, name).ndim:
                getattr(self.state, name)[:] = value
            else:
                setattr(self.state, name, value)
        return self

    def read(self, *fields):
        return np.array([getattr(self.state, name) for name in fields], np.float64)

    def step(self, *action):
        """The reward of a step with an action."""
        return self.environment.step(self.state, self.params, np.array(action, np.float32), self.rng)[0]

    def seen(self):
        """The observation, by the names of the signals."""
        observation = np.zeros(self.environment.observation.shape, np.float32)
        self.environment.observe(self.state, self.params, observation)
        return dict(zip(self.environment.signals, observation, strict=True))
