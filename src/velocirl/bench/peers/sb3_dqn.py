"""DQN of Stable-Baselines3: training on Gymnasium's CartPole, and updates only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.logger import Logger  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.vec_env import SubprocVecEnv  # pyright: ignore[reportMissingImports]

RECORDS = 10_000


class Spaces(gymnasium.Env):
    """Environment that only defines spaces."""

    def __init__(self, inputs: int, actions: int) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (inputs,)), Discrete(actions)


def training(batch_size: int, steps: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps of CartPole, with an update every 4 steps."""
    torch.set_num_threads(1)  # networks this small are slower on two
    learner = DQN(
        "MlpPolicy", gymnasium.make("CartPole-v1"), buffer_size=100_000, learning_starts=100, batch_size=batch_size,
        train_freq=4, target_update_interval=500, policy_kwargs={"net_arch": [64, 64]}, seed=0, device="cpu",
    )  # fmt: skip
    return lambda: learner.learn(steps, reset_num_timesteps=False)


def agent(inputs: int, actions: int, width: int, batch_size: int) -> Any:
    """Build an agent with two hidden layers and a replay buffer full of random transitions."""
    torch.set_num_threads(1)
    architecture = {"net_arch": [width, width]}
    learner = DQN(
        "MlpPolicy", Spaces(inputs, actions), buffer_size=RECORDS, batch_size=batch_size, policy_kwargs=architecture,
        seed=0, device="cpu",
    )  # fmt: skip
    learner.set_logger(Logger(None, []))
    memory: Any = learner.replay_buffer
    generator = np.random.default_rng(0)
    memory.observations[:] = generator.normal(size=memory.observations.shape)
    memory.next_observations[:] = generator.normal(size=memory.observations.shape)
    memory.rewards[:] = generator.normal(size=memory.rewards.shape)
    memory.actions[:] = generator.integers(0, actions, memory.actions.shape)
    memory.full = True
    return learner


def updating(inputs: int, actions: int, width: int, batch_size: int, updates: int) -> Callable[[], object]:
    """Return a call that makes `updates` updates."""
    learner = agent(inputs, actions, width, batch_size)
    return lambda: learner.train(gradient_steps=updates, batch_size=batch_size)


def training_on_gpu(num_envs: int, batch_size: int, gradient_steps: int, width: int) -> Callable[[], object]:
    """Return a call that steps all environments once, in this process, and makes the updates on the GPU."""
    envs = make_vec_env("CartPole-v1", n_envs=num_envs, seed=0)
    learner = DQN(
        "MlpPolicy", envs, batch_size=batch_size, train_freq=1, gradient_steps=gradient_steps, learning_starts=num_envs,
        seed=0, device="cuda", policy_kwargs={"net_arch": [width, width]},
    )  # fmt: skip
    learner.learn(2 * num_envs)
    return lambda: learner.learn(num_envs, reset_num_timesteps=False)


def training_slowly(num_envs: int, batch_size: int, train_every: int, steps: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps of environments that pause in each step, one process per environment."""
    from slow_cartpole import SlowCartPole  # beside this script # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    learner = DQN(
        "MlpPolicy", make_vec_env(SlowCartPole, n_envs=num_envs, seed=0, vec_env_cls=SubprocVecEnv), train_freq=1,
        gradient_steps=num_envs // train_every, buffer_size=100_000, learning_starts=100, batch_size=batch_size,
        target_update_interval=500, policy_kwargs={"net_arch": [64, 64]}, seed=0, device="cpu",
    )  # fmt: skip
    learner.learn(200)  # so that updates happen from the first measured call on
    return lambda: learner.learn(steps, reset_num_timesteps=False)
