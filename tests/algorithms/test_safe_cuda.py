"""Constrained algorithms on a GPU against the same elsewhere: multipliers, parameters, resumed runs."""

import numpy as np
import pytest
from choosing import on_cuda
from tank import tank

import velocirl
from velocirl import FOCOPS, PPOLagrangian, SACLagrangian
from velocirl.runs.memory_files import whole

pytestmark = on_cuda()

LIMITS = {"cost_limits": {"level": 1.0, "weight": 0.2}}
ROLLOUT = {"num_envs": 32, "horizon": 8, "minibatch_size": 64, "epochs": 2, "hidden": (8, 8)}
CASES = {
    PPOLagrangian: (ROLLOUT, 1024),
    FOCOPS: (ROLLOUT, 1024),
    SACLagrangian: (
        {"num_envs": 4, "learning_starts": 32, "train_every": 4, "batch_size": 32, "buffer_size": 500, "gamma": 0.5,
         "hidden": (8, 8), "learning_rate": 0.01}, 256,
    ),
}  # fmt: skip
each = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.name)


def trained(kind, **given):
    config, steps = CASES[kind]
    agent = kind(tank(), seed=1, precision="float32", **{**LIMITS, **config, **given})
    return agent.learn(steps)


@each
def test_multipliers_and_parameters_are_those_of_the_cpu(kind):
    """Rollouts are shuffled differently from Python: a rate near 0 keeps policy and episodes the same.

    From a memory, torch draws the same transitions on a GPU as on the CPU, and others than native networks do.
    """
    if kind is SACLagrangian:
        elsewhere, given = {"device": "cpu", "network": "mlp(8, 8)"}, {}
    else:
        elsewhere, given = {"device": "python"}, {"learning_rate": 1e-9}
    gpu, other = trained(kind, device="cuda", **given), trained(kind, **elsewhere, **given)
    found, expected = (agent.arrays()["numbers.values"] for agent in (gpu, other))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert (found[1:3] if kind is SACLagrangian else found[:2]).max() > 0.0
    assert np.isfinite(gpu.parameters).all()


@each
def test_resuming_is_exact(kind, tmp_path):
    steps, agent = CASES[kind][1], trained(kind, device="cuda")
    again = velocirl.load(agent.save(tmp_path / "agent"))
    for one in (agent, again):
        one.learn(steps)
    found, expected = whole(again.arrays()), whole(agent.arrays())
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
