"""Environments for which nobody chose settings: what agents do there by default."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from velocirl import A2C, DQN, PPO, SAC, TD3
from velocirl.networks.observations import bounded_by_design


def env_of(observation, action=spaces.Discrete(2)):  # noqa: B008 - nobody changes it
    class Still(gymnasium.Env):
        observation_space, action_space = observation, action

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

    return Still


@pytest.mark.parametrize(
    ("space", "bounded"),
    [
        (spaces.Box(-1.0, 1.0, (3,)), True),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Discrete(5), True),
        (spaces.Box(-np.inf, np.inf, (3,)), False),
        (spaces.Box(-10.0, 10.0, (3,)), False),
        (spaces.Dict(near=spaces.Box(-1.0, 1.0, (2,)), far=spaces.Box(0.0, 1e6, (1,))), False),
    ],
)
def test_observations_are_normalised_where_their_size_is_not_known(space, bounded):
    assert bounded_by_design(space) == bounded
    assert PPO(env_of(space)).config.normalise_observations == (not bounded)


def test_defaults_give_way_to_what_is_said():
    env = env_of(spaces.Box(-np.inf, np.inf, (3,)))
    agent = PPO(env)
    assert (agent.config.num_envs, agent.config.horizon) == (4, 256)
    assert agent.config.normalise_rewards
    assert PPO(env, num_envs=1).config.horizon == 1024  # of as many samples
    assert PPO(env, num_envs=4096).config.horizon == 8
    assert PPO(env, num_envs=1, horizon=64).config.horizon == 64
    assert PPO([env, env]).config.horizon == 512
    assert not PPO(env, normalise_observations=False).config.normalise_observations
    assert PPO("CartPole-v1").config.horizon != 256  # which has a preset
    assert A2C(env).config.horizon == A2C.Config().horizon
    with pytest.raises(ValueError, match="num_envs"):
        PPO(env, num_envs="8")

    moved = env_of(spaces.Box(-np.inf, np.inf, (3,)), spaces.Box(-1.0, 1.0, (1,)))
    assert (SAC(moved).config.batch_size, SAC(moved).config.gradient_steps) == (128, 2)
    assert (SAC(moved, batch_size=256, gradient_steps=1).config.batch_size, SAC.Config().gradient_steps) == (256, 1)


def test_norms_are_for_layers_that_nobody_described():
    import torch

    env = env_of(spaces.Box(-np.inf, np.inf, (3,)))
    assert DQN(env).config.layer_norm
    assert DQN(env, hidden=(8,)).config.layer_norm
    assert DQN(env, network="mlp(8)").config.layer_norm is None
    assert DQN(env, network=torch.nn.Linear(3, 3)).config.layer_norm is None
    assert DQN(env, network="mlp(8)", layer_norm=True).config.layer_norm
    assert DQN("CartPole-v1").config.layer_norm is None
    assert PPO(env).config.layer_norm
    assert PPO(env, network="lstm(8)").config.layer_norm is None


def test_norms_of_critics_are_for_layers_that_nobody_described():
    env = env_of(spaces.Box(-np.inf, np.inf, (3,)), spaces.Box(-1.0, 1.0, (2,)))
    assert TD3(env).config.critic_layer_norm
    assert TD3(env, hidden=(8,)).config.critic_layer_norm
    assert TD3(env, network="mlp(8)").config.critic_layer_norm is None
    assert TD3(env, critic="mlp(8)").config.critic_layer_norm is None
    assert TD3(env, network="mlp(8)", critic_layer_norm=True).config.critic_layer_norm
    assert TD3("Pendulum-v1").config.critic_layer_norm is None


@pytest.mark.slow
def test_ppo_learns_where_nobody_tuned():
    """HalfCheetah-v5, 100,000 steps: at random about -350, Stable-Baselines3 by its defaults 10 to 740."""
    import velocirl

    for seed in (5, 6):
        agent = PPO("gym:HalfCheetah-v5", seed=seed, device="cpu").learn(100_000)
        assert velocirl.evaluate(agent, episodes=5, seed=0).mean_return > 1000
