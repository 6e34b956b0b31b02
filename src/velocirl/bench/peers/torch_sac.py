"""SAC written by hand in eager torch, everything on one device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import log, pi

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn.functional import softplus  # pyright: ignore[reportMissingImports]

from velocirl.bench.peers.torch_ppo import on_gpu

MEMORY, TIME_LIMIT = 1_048_576, 200
GAMMA, LEARNING_RATE, TAU, TARGET_ENTROPY = 0.99, 3e-4, 0.005, -1.0


class TensorPendulums:
    """Gymnasium's Pendulum-v1 as tensor operations on a device, with synchronous episodes."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs, self.device = num_envs, device
        self.begin()

    def begin(self) -> None:
        """Start new episodes."""
        self.angles = torch.empty(self.num_envs, device=self.device).uniform_(-pi, pi)
        self.speeds = torch.empty_like(self.angles).uniform_(-1, 1)
        self.steps = 0

    def seen(self) -> Tensor:
        """Return the observations, (num_envs, 3)."""
        return torch.stack([self.angles.cos(), self.angles.sin(), self.speeds], 1)

    def step(self, actions: Tensor) -> Tensor:
        """Step with actions in [-1, 1]; returns the rewards."""
        torques = 2.0 * actions[:, 0]
        angles = torch.remainder(self.angles + pi, 2 * pi) - pi
        rewards = -(angles**2 + 0.1 * self.speeds**2 + 0.001 * torques**2)
        self.speeds = (self.speeds + (15.0 * self.angles.sin() + 3.0 * torques) * 0.05).clamp(-8, 8)
        self.angles = self.angles + self.speeds * 0.05
        self.steps += 1
        return rewards


def layers(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Build a network with two hidden layers."""
    hidden = nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class Critics(nn.Module):
    """Pair of critics."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = layers(4, width, 1), layers(4, width, 1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Compute the values of both critics, (rows, 2)."""
        both = torch.cat([observations, actions], 1)
        return torch.cat([self.first(both), self.second(both)], 1)


class Training:
    """SAC with its Pendulums and its replay buffer on one device."""

    def __init__(self, num_envs: int, batch_size: int, gradient_steps: int, width: int, device: str) -> None:
        torch.manual_seed(0)
        self.batch_size, self.gradient_steps, self.device = batch_size, gradient_steps, device
        self.actor, self.critics = layers(3, width, 2).to(device), Critics(width).to(device)
        self.frozen = copy.deepcopy(self.critics)
        self.log_temperature = torch.zeros(1, device=device, requires_grad=True)
        trained = self.actor.parameters(), self.critics.parameters(), [self.log_temperature]
        self.optimisers = [torch.optim.Adam(one, lr=LEARNING_RATE, fused=True) for one in trained]
        self.envs = TensorPendulums(num_envs, device)
        self.capacity = MEMORY // num_envs * num_envs
        self.observations, self.following = torch.empty(2, self.capacity, 3, device=device)
        self.actions = torch.empty(self.capacity, 1, device=device)
        self.rewards = torch.empty(self.capacity, device=device)
        self.place, self.filled = 0, 0

    def iterate(self) -> None:
        """Step all environments once, then make the updates."""
        self.step()
        for _ in range(self.gradient_steps):
            self.update()

    def act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions; returns them with their log-densities."""
        mean, log_deviation = self.actor(observations).chunk(2, 1)
        log_deviation = log_deviation.clamp(-20, 2)
        noise = torch.randn_like(mean)
        before = mean + log_deviation.exp() * noise
        density = -0.5 * noise**2 - log_deviation - 0.5 * log(2 * pi)
        density = density - 2 * (log(2) - before - softplus(-2 * before))
        return before.tanh(), density.sum(1)

    @torch.no_grad()
    def step(self) -> None:
        """Act and store the transitions; a truncated episode is not terminal."""
        seen = self.envs.seen()
        actions, _ = self.act(seen)
        group = slice(self.place, self.place + len(seen))
        self.observations[group], self.actions[group] = seen, actions
        self.rewards[group] = self.envs.step(actions)
        self.following[group] = self.envs.seen()
        if self.envs.steps == TIME_LIMIT:
            self.envs.begin()
        self.place = group.stop % self.capacity
        self.filled = min(self.filled + len(seen), self.capacity)

    def update(self) -> None:
        """Update the critics, the actor, the temperature and the target critics."""
        rows = torch.randint(self.filled, (self.batch_size,), device=self.device)
        observations, actions = self.observations[rows], self.actions[rows]
        temperature = self.log_temperature.detach().exp()
        with torch.no_grad():
            next_actions, density = self.act(self.following[rows])
            following = self.frozen(self.following[rows], next_actions).amin(1) - temperature * density
            goals = self.rewards[rows] + GAMMA * following
        actor, critic, heat = self.optimisers
        critic.zero_grad(set_to_none=True)
        (0.5 * (self.critics(observations, actions) - goals[:, None]) ** 2).sum(1).mean().backward()
        critic.step()
        better, density = self.act(observations)
        actor.zero_grad(set_to_none=True)
        (temperature * density - self.critics(observations, better).amin(1)).mean().backward()
        actor.step()
        heat.zero_grad(set_to_none=True)
        (-self.log_temperature * (density.detach() + TARGET_ENTROPY).mean()).sum().backward()
        heat.step()
        with torch.no_grad():
            pairs = zip(self.frozen.parameters(), self.critics.parameters(), strict=True)
            for frozen, learnt in pairs:
                frozen.lerp_(learnt, TAU)


def training_on_gpu(num_envs: int, batch_size: int, gradient_steps: int, width: int) -> Callable[[], None]:
    """Return a call that takes one step and makes its updates on a CUDA device."""
    return on_gpu(lambda: Training(num_envs, batch_size, gradient_steps, width, "cuda").iterate)
