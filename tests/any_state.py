"""Fleets in states that nobody ever reached, and that a file may hold all the same."""

import numpy as np

import velocirl


def in_any_state(name, count, rng):
    """Copies whose fields have whatever lies within their bounds, often the bounds; every index is tested from here."""
    envs = velocirl.make_vec(name, count, seed=0, check=True)
    record = envs.environment.state
    envs.reset()
    state = envs.get_state()
    for field in record.fields:
        low, high = record.bounds.get(field, (0, 1))
        drawn = rng.integers(low, high + 1, state["state"][field].shape)
        ends = rng.choice([low, high], drawn.shape)
        state["state"][field] = np.where(rng.random(drawn.shape) < 0.5, drawn, ends)
    envs.set_state(state)
    return envs
