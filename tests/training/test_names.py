"""Names of Stable-Baselines3's models and modules: what they give here, and what is said of the rest."""

import copy
import pickle

import pytest

import velocirl
from velocirl import DQN, PPO, QLearning
from velocirl.training.names import IN_PACKAGE, ON_AGENTS

SMALL = {"num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1, "hidden": (4,), "threads": 1, "seed": 1,
         "device": "python"}  # fmt: skip


def test_attributes_of_models_there_are_those_of_agents():
    agent = PPO("Counter-v0", **SMALL).learn(32)
    assert (agent.num_timesteps, agent.n_envs, agent.n_steps, agent.gamma) == (32, 2, 8, agent.config.gamma)
    assert agent.observation_space == agent.source.observation_space
    assert agent.action_space == agent.source.action_space
    assert QLearning("CliffWalking-v1", seed=0).num_timesteps == 0
    assert DQN("Counter-v0", device="python").buffer_size == 100_000


@pytest.mark.parametrize("name", ON_AGENTS)
def test_other_attributes_say_what_to_write(name):
    agent = PPO("Counter-v0", **SMALL)
    with pytest.raises(AttributeError, match=f"'PPO' object has no attribute '{name}': [a-z(]"):
        getattr(agent, name)


def test_a_name_that_nobody_knows_is_no_attribute():
    agent = PPO("Counter-v0", **SMALL)
    assert not hasattr(agent, "steps_taken")
    agent.own_note = 3  # of a callback's, say
    assert agent.own_note == 3
    assert copy.deepcopy(agent).config == pickle.loads(pickle.dumps(agent)).config == agent.config


@pytest.mark.parametrize("name", IN_PACKAGE)
def test_names_of_the_package_say_what_to_use(name):
    with pytest.raises(AttributeError, match=f"'velocirl' has no attribute '{name}': use "):
        getattr(velocirl, name)
    with pytest.raises(ImportError, match=f"'velocirl' has no attribute '{name}': use "):
        exec(f"from velocirl import {name}")
    assert not hasattr(velocirl, name)


def test_what_is_not_known_is_told_as_ever():
    with pytest.raises(AttributeError, match=r"module 'velocirl' has no attribute 'PPOO'$"):
        _ = velocirl.PPOO
    with pytest.raises(ImportError, match="cannot import name 'PPOO' from 'velocirl'"):
        from velocirl import PPOO  # noqa: F401
