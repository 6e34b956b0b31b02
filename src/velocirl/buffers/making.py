"""Replay buffer of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.replay import ReplayBuffer


def make_buffer(config: Any, kind: np.dtype[Any], seed: int, copies: int) -> ReplayBuffer:
    """Create a replay buffer for records of type `kind`, in whole groups of one record per environment.

    `copies` is the number of environments: all `num_envs`, or a part of them.
    """
    capacity = max(config.buffer_size // config.num_envs, 1) * copies
    path = None if config.buffer_file is None else Path(config.buffer_file)
    if config.priority == "proportional":
        return PrioritisedReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    if config.priority == "rank":
        return RankReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    return ReplayBuffer(capacity, kind, seed, path)
