"""device="python" is the oracle of the compiled learner: the same training in the interpreter, up to rounding."""

import gymnasium
import numpy as np
import pytest
from choosing import slow_but
from gamble import gamble
from hybrid import aiming, forbidding
from parts import Parts

from velocirl import DQN, PPO, SAC, TD3, SACLagrangian

ROLLOUT = {"num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 2, "hidden": (8, 8), "learning_rate": 0.01}
REPLAY = {"num_envs": 2, "learning_starts": 16, "train_every": 4, "batch_size": 16, "buffer_size": 40, "hidden": (8, 8)}
CASES = {
    "choices": (PPO, "CartPole-v1", ROLLOUT, 96),
    "numbers": (PPO, "Pendulum-v1", ROLLOUT, 96),
    "masks": (PPO, "TicTacToe-v1", {**ROLLOUT, "gradient_accumulation": 2}, 96),
    "parts": (PPO, "gym:EqualParts-v7", ROLLOUT, 96),
    "several parts": (PPO, aiming, ROLLOUT, 96),
    "masks of parts": (PPO, forbidding, {**ROLLOUT, "estimator": "vtrace"}, 96),
    "normalised": (
        PPO, "CartPole-v1",
        {**ROLLOUT, "normalise_observations": True, "normalise_rewards": True, "epochs": 3, "minibatch_size": 8}, 96,
    ),
    "corrected": (
        PPO, "CartPole-v1",
        {**ROLLOUT, "estimator": "vtrace", "minibatches": "environments", "shared": True, "value_clip": 0.1}, 96,
    ),
    "stopped": (PPO, "CartPole-v1", {**ROLLOUT, "target_kl": 1e-3, "epochs": 8}, 96),
    "values": (DQN, "CartPole-v1", {**REPLAY, "n_step": 3, "priority": "proportional", "target_every": 3}, 64),
    "soft": (SAC, "Pendulum-v1", {**REPLAY, "learning_rate": 0.003, "n_step": 2}, 64),
    "layer norms": (SAC, "Pendulum-v1", {**REPLAY, "learning_rate": 0.003, "critic_layer_norm": True}, 64),
    "limits": (
        SACLagrangian, gamble,
        {**REPLAY, "learning_rate": 0.003, "cost_limits": {"heat": 0.5}, "multiplier_episodes": 3, "gamma": 0.5}, 64,
    ),
    "twins": (TD3, "Pendulum-v1", {**REPLAY, "learning_rate": 0.003, "noise_correlation": 0.5}, 64),
}  # fmt: skip
RARE = {"several parts", "masks of parts", "soft", "limits"}  # each compiles for ten seconds
EXACT = ("rng", "steps", "updates", "episodes")  # the ends of the names of arrays in which nothing is rounded


@pytest.fixture(scope="module", autouse=True)
def _register():
    gymnasium.register("EqualParts-v7", Parts)
    yield
    gymnasium.registry.pop("EqualParts-v7")


def trained(name, device):
    kind, environment, config, steps = CASES[name]
    agent = kind(environment, seed=1, threads=1, device=device, activation="tanh", **config)
    first = agent.parameters.copy()
    agent.learn(steps)
    assert np.abs(agent.parameters - first).max() > 1e-3
    return agent


def shown(agent):
    rows = agent.metrics.items()
    return {name: value for name, value in rows if name.startswith(("train/", "rollout/")) and value is not None}


@pytest.mark.parametrize("name", slow_but(CASES.keys() - RARE, CASES))
def test_compiled_code_does_what_plain_python_does(name):
    compiled, plain = trained(name, "cpu"), trained(name, "python")
    np.testing.assert_allclose(plain.parameters, compiled.parameters, atol=1e-5)
    assert shown(plain) == pytest.approx(shown(compiled), rel=1e-3, abs=1e-5, nan_ok=True)
    assert list(plain.recent.lengths) == list(compiled.recent.lengths)
    expected, found = compiled.arrays(), plain.arrays()
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        if key == "learner.minibatches":
            assert found[key][-1] == array[-1]  # of the run
        elif key.endswith(EXACT):
            np.testing.assert_array_equal(found[key], array, err_msg=key)
        elif key.endswith((".parameters", ".moments", ".values")):
            np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)


def test_multipliers_move_once_enough_episodes_have_ended():
    """Episodes of 2 copies end together, after 10 of 32 steps each: the first 4 decide, and 2 wait for others."""
    arrays = trained("limits", "python").arrays()
    assert (arrays["numbers.values"][1:3] > 0.0).all()  # the multiplier, and its integral
    assert arrays["policy.episodes"][:, 0].tolist() == [1.0, 1.0]


def test_an_update_that_is_stopped_is_stopped_in_both():
    compiled, plain = trained("stopped", "cpu"), trained("stopped", "python")
    made = compiled.arrays()["learner.minibatches"]
    assert made[0] < 16
    np.testing.assert_array_equal(plain.metrics["train/minibatches"], made[0])
