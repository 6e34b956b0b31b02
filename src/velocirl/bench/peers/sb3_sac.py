"""SAC of Stable-Baselines3 on Gymnasium's Pendulum."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]


def training(steps: int, threads: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps with its defaults: batch 256, 1 update per step, networks of 256x256."""
    torch.set_num_threads(threads)
    learner = SAC("MlpPolicy", gymnasium.make("Pendulum-v1"), seed=0, device="cpu")
    learner.learn(learner.learning_starts + 1)  # from here on, 1 update per step
    return lambda: learner.learn(steps, reset_num_timesteps=False)


def training_on_gpu(num_envs: int, batch_size: int, gradient_steps: int, width: int) -> Callable[[], object]:
    """Return a call that steps all environments once, in this process, and makes the updates on the GPU."""
    envs = make_vec_env("Pendulum-v1", n_envs=num_envs, seed=0)
    learner = SAC(
        "MlpPolicy", envs, batch_size=batch_size, gradient_steps=gradient_steps, learning_starts=num_envs, seed=0,
        device="cuda", policy_kwargs={"net_arch": [width, width]},
    )  # fmt: skip
    learner.learn(2 * num_envs)
    return lambda: learner.learn(num_envs, reset_num_timesteps=False)
