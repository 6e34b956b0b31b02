"""Generic defaults: the settings of agents in environments without a preset, compiled or not."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import velocirl
from velocirl import A2C, DQN, FOCOPS, PPO, QRDQN, SAC, TD3, DiscreteSAC, PPOLagrangian, SACLagrangian
from velocirl.engine.registry import find
from velocirl.networks.observations import bounded_by_design
from velocirl.training.off_policy import OffPolicyConfig, generic_buffer_size

CHOICE, NUMBERS = spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,))


def env_of(observation, action=spaces.Discrete(2)):  # noqa: B008 - nobody changes it
    class Still(gymnasium.Env):
        observation_space, action_space = observation, action

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

    return Still


@velocirl.record
class State:
    count: velocirl.int32


@velocirl.record
class Params:
    limit: velocirl.int32 = 5


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    state.count += 1
    return 1.0, state.count >= params.limit


def observe(state, params, observation):
    for k in range(len(observation)):
        observation[k] = state.count


def own_env_of(observation, action=CHOICE, **presets):
    constraint = velocirl.Constraint("count", value=lambda state, params: state.count, high=3)
    return velocirl.Environment(
        "OwnStill-v0", state=State, params=Params, observation=observation, action=action, max_steps=9, reset=reset,
        step=step, observe=observe, presets=presets, constraints=(constraint,),
    )  # fmt: skip


def renamed(name, **presets):
    """A built-in environment as if it were somebody's own."""
    return dataclasses.replace(find(name), id=f"Own{name}", presets=presets)


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        *((kind, CHOICE) for kind in (PPO, A2C, DQN, QRDQN, DiscreteSAC)),
        *((kind, NUMBERS) for kind in (PPO, A2C, SAC, TD3, FOCOPS, PPOLagrangian, SACLagrangian)),
    ],
)
@pytest.mark.parametrize("high", [1.0, 10.0, np.inf])
def test_an_environment_of_ones_own_gets_what_gymnasiums_get(kind, action, high):
    """Only where steps are slow do PPO's rollouts have another shape, as `python_steps` says."""
    observation = spaces.Box(-high, high, (3,))
    compiled, stepped = (
        dataclasses.asdict(kind(env, seed=0, threads=1, shares=1).config)
        for env in (own_env_of(observation, action), env_of(observation, action))
    )
    differ = {name for name in compiled if compiled[name] != stepped[name]}
    assert differ == {name for name, value in kind.python_steps.items() if compiled[name] != value}
    assert differ <= {*PPO.python_steps}
    assert (kind.python_steps == {}) == (not issubclass(kind, PPO) or kind is A2C)
    scaled = compiled["normalise_observations" if "normalise_observations" in compiled else "scale_observations"]
    assert scaled == (high > 1)


def test_generic_defaults_are_for_environments_without_a_preset():
    observation = spaces.Box(-10.0, 10.0, (3,))
    agent = PPO(own_env_of(observation))
    assert agent.config.normalise_observations
    assert agent.config.normalise_rewards
    assert agent.config.entropy_coefficient == 0
    assert agent.config.layer_norm
    assert (agent.config.num_envs, agent.config.horizon) == (32, 64)
    assert PPO(own_env_of(observation), num_envs=256).config.horizon == 8  # of as many samples
    assert not PPO(own_env_of(observation), normalise_rewards=False).config.normalise_rewards
    agent = PPO(own_env_of(observation, ppo={"gamma": 0.9, "total_steps": 100}))  # a preset is all there is
    plain = dataclasses.replace(PPO.Config(), gamma=0.9)
    resolved = {"seed", "threads", "shares", "device", "precision"}
    assert all(getattr(agent.config, one.name) == getattr(plain, one.name)
               for one in dataclasses.fields(plain) if one.name not in resolved)  # fmt: skip
    assert A2C(own_env_of(observation, ppo={"gamma": 0.9})).config.normalise_observations  # it is PPO's alone
    assert PPO("ChemicalReactor-v0").config.layer_norm is None
    assert SAC("ChemicalReactor-v0").config.scale_observations  # a built-in environment without a preset for SAC
    assert not SAC("Pendulum-v1").config.scale_observations


def test_a_replay_buffer_has_room_for_a_million_transitions_that_are_not_large():
    assert SAC(own_env_of(spaces.Box(-1.0, 1.0, (3,)), NUMBERS)).config.buffer_size == 1_000_000
    assert SAC("Pendulum-v1").config.buffer_size == OffPolicyConfig.buffer_size
    assert [generic_buffer_size(inputs) for inputs in (134, 135, 1000, 84 * 84 * 4)] == [
        1_000_000, 994_205, 134_217, OffPolicyConfig.buffer_size,
    ]  # fmt: skip


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
    for seed in (5, 6):
        agent = PPO("gym:HalfCheetah-v5", seed=seed, device="cpu").learn(100_000)
        assert velocirl.evaluate(agent, episodes=5, seed=0).mean_return > 1000


@pytest.mark.parametrize("seed", [5, pytest.param(6, marks=pytest.mark.slow)])
def test_ppo_learns_an_environment_of_ones_own(seed):
    """The chemical reactor without its preset, 300,000 steps: 88 by the defaults of the configuration, its PID 191."""
    agent = PPO(renamed("ChemicalReactor-v0"), seed=seed, threads=1, device="cpu").learn(300_000)
    assert velocirl.evaluate(agent, episodes=50, seed=0).mean_return >= 191
