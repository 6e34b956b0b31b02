"""The seeds that follow from an agent's one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Seeds(NamedTuple):
    """The seeds of an agent's parts."""

    environment: int
    policy: int  # of the actions of training
    learner: int
    acting: int  # of the actions outside of training
    initial: int  # of the first parameters


def spread_seed(seed: int) -> Seeds:
    """The seeds of an agent's parts."""
    return Seeds(*(int(word) for word in np.random.SeedSequence(seed).generate_state(5, np.uint64)))


def seed_or_drawn(seed: int | None) -> int:
    """The seed that was given, or one that nobody chose."""
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
