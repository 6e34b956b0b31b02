"""Small data sets of made-up numbers, for algorithms that learn from data."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from gymnasium.spaces import Discrete

from velocirl import Dataset, DatasetInfo
from velocirl.engine import registry

FOLDER = tempfile.TemporaryDirectory()  # which lasts as long as the tests do


def made_up(environment, episodes=12, length=20, seed=0):
    """Episodes of an environment's spaces, every second of which terminates; the others are cut off."""
    found, generator = registry.find(environment), np.random.default_rng(seed)
    constraints = tuple(one.name for one in found.constraints)
    info = DatasetInfo(found.observation, found.action, environment=found.id, constraints=constraints)
    return Dataset.from_episodes(
        [episode(info, generator, length, terminates=number % 2 == 0) for number in range(episodes)], info
    )


def episode(info, generator, length, *, terminates):
    seen = info.observation_space
    low, high = np.maximum(seen.low, -2), np.minimum(seen.high, 2)
    observations = generator.uniform(low, high, (length + 1, *seen.shape)).astype(seen.dtype)
    if isinstance(info.action_space, Discrete):
        actions = generator.integers(0, info.action_space.n, length)
    else:
        acted = info.action_space
        actions = generator.uniform(acted.low, acted.high, (length, *acted.shape)).astype(acted.dtype)
    last = np.arange(length) == length - 1
    return {
        "observations": observations,
        "actions": actions.astype(info.action_space.dtype),
        "rewards": generator.normal(size=length).astype(np.float32),
        "costs": generator.integers(0, 2, (length, len(info.constraints))).astype(np.float32),
        "terminations": last & terminates,
        "truncations": last & (not terminates),
    }


@cache
def file_of(environment):
    """The file of such a data set of an environment, by its id."""
    return str(made_up(environment).save(Path(FOLDER.name) / f"{environment}.vds"))
