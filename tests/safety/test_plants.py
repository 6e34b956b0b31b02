"""The shield on plants: none of their critical limits is violated by random actions, which violate them without it."""

import numpy as np
import pytest

import velocirl
from velocirl.safety import ShieldedVectorEnv

COPIES, STEPS, HELD = 512, 200, 40  # actions are kept for 40 steps, so that they get the plant somewhere


def critical_violations(envs):
    critical = [one.critical for one in envs.unwrapped.environment.constraints]
    rng, space = np.random.default_rng(0), envs.single_action_space
    envs.reset(seed=0)
    found, actions = 0.0, None
    for step in range(STEPS):
        if step % HELD == 0:
            actions = rng.uniform(space.low, space.high, (COPIES, *space.shape)).astype(np.float32)
        found += envs.step(actions)[4]["costs"][:, critical].sum()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "horizon", "margin"),
    [("ChemicalReactor-v0", 40, {"runaway": 5.0}), ("PowerGrid-v0", 5, {"frequency": 0.3})],
)
def test_no_critical_limit_is_violated(plant, horizon, margin):
    assert critical_violations(velocirl.make_vec(plant, COPIES)) > 10
    shield = ShieldedVectorEnv(velocirl.make_vec(plant, COPIES), horizon=horizon, margin=margin)
    assert critical_violations(shield) == 0
    assert shield.interventions.replaced > 0
