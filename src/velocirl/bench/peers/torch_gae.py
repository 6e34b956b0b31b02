"""Generalized advantage estimation in torch: backwards through time, all environments at once."""

from __future__ import annotations

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed


def gae(
    rewards: torch.Tensor,  # (horizon, num_envs), as are values, final_values and ended
    values: torch.Tensor,
    final_values: torch.Tensor,  # values of the observations after the ends of episodes
    ended: torch.Tensor,
    last_values: torch.Tensor,  # (num_envs,)
    gamma: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute advantages and value targets, (horizon, num_envs) each."""
    advantages = torch.empty_like(values)
    advantage, next_values = torch.zeros_like(last_values), last_values
    for t in range(len(values) - 1, -1, -1):
        next_values = torch.where(ended[t], final_values[t], next_values)
        delta = rewards[t] + gamma * next_values - values[t]
        advantage = delta + gamma * gae_lambda * torch.where(ended[t], 0.0, advantage)
        advantages[t] = advantage
        next_values = values[t]
    return advantages, advantages + values


def estimating(num_envs: int, horizon: int) -> Callable[[], object]:
    """Return a call that computes GAE for one rollout of random numbers."""
    torch.manual_seed(0)
    rewards, values, final_values, ended = torch.rand(4, horizon, num_envs)
    ends, last_values = ended < 0.02, torch.rand(num_envs)

    def call() -> object:
        with torch.inference_mode():
            return gae(rewards, values, final_values, ends, last_values, 0.99, 0.95)

    return call
