"""Schedule of an on-policy iteration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Schedule(NamedTuple):
    """Parameters that may change from iteration to iteration."""

    learning_rate: float
    epochs: int
    minibatches: int
    accumulate: int  # minibatches per optimizer step (gradient accumulation)
    unit: int  # samples drawn together: 1, or one environment's whole rollout
    max_grad_norm: float
    max_grad_value: float


# The part of `Schedule` that compiled loops read.
SCHEDULE = np.dtype([(name, np.int64) for name in ("epochs", "minibatches", "accumulate", "unit")])
