"""The numbers of an iteration of an algorithm that learns from rollouts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Schedule(NamedTuple):
    """What may change from iteration to iteration."""

    learning_rate: float
    epochs: int
    minibatches: int
    accumulate: int  # minibatches whose mean gradient makes one step
    unit: int  # samples that are drawn together: 1, or a copy's whole rollout
    max_grad_norm: float
    max_grad_value: float


# What compiled loops read of it.
SCHEDULE = np.dtype([(name, np.int64) for name in ("epochs", "minibatches", "accumulate", "unit")])
