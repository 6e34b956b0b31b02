"""TD3 with torch networks: it learns, also from images, and repeats itself."""

import numpy as np
import pytest
import torch
from choosing import slow_but

import velocirl
from velocirl import Box, Environment, float32, random, record
from velocirl.algorithms.online.td3 import TD3

SMALL = {
    "num_envs": 4, "buffer_size": 5000, "learning_starts": 200, "batch_size": 64, "train_every": 4, "gradient_steps": 1,
    "seed": 3, "threads": 1, "device": "cpu", "gamma": 0.5, "hidden": (16, 16), "learning_rate": 3e-3, "n_step": 1,
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@record
class State:
    bright: float32


def reset(state, params, rng):
    state.bright = random.uniform(rng, -1.0, 1.0)


def step(state, params, action, rng):
    error = action[0] - state.bright
    state.bright = random.uniform(rng, -1.0, 1.0)
    return -error * error, False


def observe(state, params, observation):
    for row in range(4):
        for column in range(4):
            observation[row, column] = state.bright if row == column else 0.0


shades = Environment(
    "Shades-v0", state=State, observation=Box(-1, 1, (4, 4)), action=Box(-1, 1, (1,)), max_steps=8,
    reset=reset, step=step, observe=observe,
)  # fmt: skip
NETWORKS = {
    "layers": ("IdentityContinuous-v0", {"network": "mlp(16, 16)"}),
    "image": (shades, {"network": "cnn(4) mlp(16)"}),
    "image and layers": (shades, {"network": "cnn(4) mlp(16)", "critic": "mlp(16, 16)"}),
}


@pytest.mark.parametrize("name", slow_but(set(), NETWORKS))
def test_it_learns(name):
    """The action is to be what is seen; the reward is the negative square of the error, 0 at best."""
    environment, config = NETWORKS[name]
    agent = TD3(environment, **{**SMALL, **config})
    before = velocirl.evaluate(agent, episodes=100, seed=1).mean_return
    agent.learn(6000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return > 0.2 * before


def test_the_actor_is_delayed_and_its_target_follows():
    agent = TD3("IdentityContinuous-v0", **{**SMALL, "network": "mlp(16, 16)", "actor_every": 3, "tau": 0.5})
    agent.learn(200)  # all of them random
    networks, first, moved = agent.learner.networks.networks, agent.parameters.copy(), []
    for _ in range(6):  # an update after each step of all copies
        before = agent.parameters.copy()
        agent.learn(4)
        moved.append(not np.array_equal(agent.parameters, before))
    assert agent.metrics["train/n_updates"] == 6
    assert moved == [False, False, True, False, False, True]
    now, target = (networks[name].to_host() for name in ("actor", "target_actor"))
    assert not np.array_equal(target, now)
    assert np.abs(target - now).max() < np.abs(first - now).max()
    networks["target_actor"].parameters.zero_()
    assert torch.count_nonzero(networks["actor"].parameters) > 0


@pytest.mark.slow
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(tmp_path):
    config = {**SMALL, "network": "cnn(4) mlp(16)", "noise_correlation": 0.5}
    whole = TD3(shades, **config).learn(2500)
    half = TD3(shades, **config).learn(2500, lambda agent: agent.steps < 1200)
    resumed = TD3.load(half.save(tmp_path / "half"), shades).learn()
    expected, found = whole.state().arrays, resumed.state().arrays
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        for field in array.dtype.names or (...,):
            assert found[name][field].tobytes() == array[field].tobytes(), (name, field)
    assert found["policy.noise"].any()
