"""The memory that a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.replay import ReplayBuffer


def make_buffer(config: Any, kind: np.dtype[Any], seed: int, copies: int) -> ReplayBuffer:
    """A memory of records of this kind, in whole groups of a record for each copy: these, or some of `num_envs`."""
    capacity = max(config.buffer_size // config.num_envs, 1) * copies
    path = None if config.buffer_file is None else Path(config.buffer_file)
    if config.priority == "proportional":
        return PrioritisedReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    if config.priority == "rank":
        return RankReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    return ReplayBuffer(capacity, kind, seed, path)
