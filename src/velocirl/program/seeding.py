"""Seeds of an agent's parts, derived from the agent's seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Seeds(NamedTuple):
    """Seeds of an agent's parts."""

    environment: int
    policy: int  # for actions in training
    learner: int
    acting: int  # for actions outside of training
    initial: int  # for the initial parameters


def spread_seed(seed: int) -> Seeds:
    """Derive the seeds of an agent's parts from one seed."""
    return Seeds(*(int(word) for word in np.random.SeedSequence(seed).generate_state(5, np.uint64)))


def seed_or_drawn(seed: int | None) -> int:
    """Return the given seed, or a random one if it is None."""
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
