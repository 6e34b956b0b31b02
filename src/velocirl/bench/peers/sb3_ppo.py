"""PPO of Stable-Baselines3 on Gymnasium's CartPole."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.vec_env import DummyVecEnv  # pyright: ignore[reportMissingImports]


def agent(num_envs: int = 1, **settings: Any) -> PPO:
    """Build PPO with its defaults except `settings`: separate tanh networks of 64x64 for policy and value."""
    environments = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)
    return PPO("MlpPolicy", environments, seed=0, device="cpu", **settings)


def training(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], object]:
    """Return a call that runs one iteration."""
    learner = agent(num_envs, n_steps=horizon, n_epochs=epochs, batch_size=minibatch_size)

    def call() -> None:
        learner.learn(num_envs * horizon, reset_num_timesteps=False)

    call()  # the first one also resets the environments
    torch.set_num_threads(min((1, 2), key=lambda threads: seconds(call, threads)))
    return call


def seconds(call: Callable[[], object], threads: int) -> float:
    """Time a call with this number of torch threads; fewer may be faster for networks this small."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def predicting() -> Callable[[], object]:
    """Return a call that predicts an action for one observation."""
    predict, observation = agent().predict, np.full(4, 0.01, np.float32)
    return lambda: predict(observation, deterministic=True)
