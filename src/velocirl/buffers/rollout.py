"""A rollout: what a fleet experienced in a few steps, a record for each copy and step.

A record is one or two lines of the cache, so that a sample drawn at random costs one or two accesses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GOES_ON, TERMINATED, TRUNCATED = 0, 1, 2  # what `ended` says of a step


def sample_type(inputs: int, action_size: int, action_dtype: str, choices: int) -> np.dtype[Any]:
    """The record of one step of one copy; `choices` is the width of the action mask, 0 where there is none."""
    return np.dtype(
        [
            ("observation", np.float32, (inputs,)),  # as the network saw it: flat, encoded and normalised
            ("action", action_dtype, (action_size,)),  # as it was drawn, before any clipping
            ("log_probability", np.float32),  # of that action when it was drawn
            ("value", np.float32),  # of the observation, by the critic of that time
            ("reward", np.float32),
            ("final_value", np.float32),  # of the last observation of an episode that was cut off; otherwise 0
            ("ratio", np.float32),  # pi(action) now / pi(action) then, where an estimator asks for it
            ("current_value", np.float32),  # of the observation, by the critic of now
            ("advantage", np.float32),
            ("target", np.float32),  # what the value should have been
            ("ended", np.int8),
            ("mask", np.int8, (max(choices, 1),)),
        ],
        align=True,
    )


def allocate_rollout(num_envs: int, horizon: int, sample: np.dtype[Any]) -> NDArray[Any]:
    """Records (num_envs, horizon): the life of a copy lies together."""
    return np.zeros((num_envs, horizon), sample)
