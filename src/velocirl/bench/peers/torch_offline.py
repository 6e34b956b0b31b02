"""TD3+BC and IQL written by hand in eager torch, with the data on the same device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import log, pi

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from velocirl.bench.peers.torch_ppo import on_gpu
from velocirl.bench.peers.torch_sac import layers

TRANSITIONS = 100_000
GAMMA, LEARNING_RATE, TAU = 0.99, 3e-4, 0.005


class Critics(nn.Module):
    """Pair of critics."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = layers(inputs, width, 1), layers(inputs, width, 1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Compute the values of both critics, (rows, 2)."""
        both = torch.cat([observations, actions], 1)
        return torch.cat([self.first(both), self.second(both)], 1)


class Training:
    """Base of both algorithms: data, an actor, two critics and their target networks."""

    def __init__(self, batch_size: int, width: int, observed: int, acted: int, device: str) -> None:
        torch.manual_seed(0)
        self.batch_size, self.device, self.updates = batch_size, device, 0
        self.observations, self.following = torch.randn(2, TRANSITIONS, observed, device=device)
        self.actions = 2 * torch.rand(TRANSITIONS, acted, device=device) - 1
        self.rewards, self.going_on = torch.randn(TRANSITIONS, device=device), torch.ones(TRANSITIONS, device=device)
        self.actor = layers(observed, width, acted).to(device)
        self.critics = Critics(observed + acted, width).to(device)
        self.frozen = copy.deepcopy(self.critics)
        self.actor_optimiser, self.critic_optimiser = self.adam(self.actor), self.adam(self.critics)

    def adam(self, network: nn.Module) -> torch.optim.Optimizer:
        """Build Adam, fused into one kernel."""
        return torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)

    def draw(self) -> Tensor:
        """Sample the row indices of a batch."""
        return torch.randint(TRANSITIONS, (self.batch_size,), device=self.device)

    def learn_values(self, rows: Tensor, following: Tensor) -> None:
        """Take a gradient step of the critics toward the bootstrapped targets."""
        goals = self.rewards[rows] + GAMMA * self.going_on[rows] * following
        self.critic_optimiser.zero_grad(set_to_none=True)
        values = self.critics(self.observations[rows], self.actions[rows])
        (0.5 * (values - goals[:, None]) ** 2).sum(1).mean().backward()
        self.critic_optimiser.step()

    @torch.no_grad()
    def follow(self, frozen: nn.Module, learnt: nn.Module) -> None:
        """Polyak averaging: move the target networks toward the trained ones, all in one call."""
        torch._foreach_lerp_(list(frozen.parameters()), list(learnt.parameters()), TAU)  # pyright: ignore[reportPrivateImportUsage]


class TD3BC(Training):
    """TD3+BC; the actor is updated every second time."""

    def __init__(self, *sizes: int, device: str) -> None:
        super().__init__(*sizes, device=device)
        self.frozen_actor = copy.deepcopy(self.actor)

    def update(self) -> None:
        """Update the critics, the actor and the target networks."""
        rows = self.draw()
        with torch.no_grad():
            following = self.following[rows]
            next_actions = self.frozen_actor(following).tanh()
            noise = (0.2 * torch.randn_like(next_actions)).clamp(-0.5, 0.5)
            values = self.frozen(following, (next_actions + noise).clamp(-1, 1)).amin(1)
        self.learn_values(rows, values)
        self.updates += 1
        if self.updates % 2 == 0:
            observations = self.observations[rows]
            actions = self.actor(observations).tanh()
            values = self.critics.first(torch.cat([observations, actions], 1))
            scale = 2.5 / values.detach().abs().mean()
            self.actor_optimiser.zero_grad(set_to_none=True)
            (((actions - self.actions[rows]) ** 2).mean() - scale * values.mean()).backward()
            self.actor_optimiser.step()
        self.follow(self.frozen, self.critics)
        self.follow(self.frozen_actor, self.actor)


class IQL(Training):
    """Implicit Q-learning."""

    def __init__(self, batch_size: int, width: int, observed: int, acted: int, device: str) -> None:
        super().__init__(batch_size, width, observed, acted, device)
        self.value, self.log_deviation = layers(observed, width, 1).to(device), nn.Parameter(torch.zeros(acted))
        self.log_deviation.data = self.log_deviation.data.to(device)
        self.actor.register_parameter("log_deviation", self.log_deviation)
        self.actor_optimiser, self.value_optimiser = self.adam(self.actor), self.adam(self.value)

    def update(self) -> None:
        """Update the value network, the actor, the critics and the target networks."""
        rows = self.draw()
        observations, actions = self.observations[rows], self.actions[rows]
        with torch.no_grad():
            values = self.frozen(observations, actions).amin(1)
        advantages = values - self.value(observations)[:, 0]
        self.value_optimiser.zero_grad(set_to_none=True)
        (torch.where(advantages > 0, 0.7, 0.3) * advantages**2).mean().backward()
        self.value_optimiser.step()
        with torch.no_grad():
            weights = (3.0 * (values - self.value(observations)[:, 0])).exp().clamp(max=100.0)
            following = self.value(self.following[rows])[:, 0]
        scores = (actions - self.actor(observations).tanh()) / self.log_deviation.exp()
        densities = (-0.5 * scores**2 - self.log_deviation - 0.5 * log(2 * pi)).sum(1)
        self.actor_optimiser.zero_grad(set_to_none=True)
        (-weights * densities).mean().backward()
        self.actor_optimiser.step()
        self.learn_values(rows, following)
        self.follow(self.frozen, self.critics)


def td3_bc_on_gpu(updates: int, *sizes: int) -> Callable[[], None]:
    """Return a call that makes `updates` updates of TD3+BC on a CUDA device."""
    return on_gpu(lambda: _several(TD3BC(*sizes, device="cuda").update, updates))


def iql_on_gpu(updates: int, *sizes: int) -> Callable[[], None]:
    """Return a call that makes `updates` updates of IQL on a CUDA device."""
    return on_gpu(lambda: _several(IQL(*sizes, device="cuda").update, updates))


def _several(update: Callable[[], None], count: int) -> Callable[[], None]:
    def call() -> None:
        for _ in range(count):
            update()

    return call
