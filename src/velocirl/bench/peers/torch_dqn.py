"""DQN written by hand in eager torch, everything on one device.

A time limit counts as a terminal state here, which saves storing final observations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn.functional import smooth_l1_loss  # pyright: ignore[reportMissingImports]

from velocirl.bench.peers.torch_ppo import TensorCartPoles, on_gpu

MEMORY, ACTIONS = 1_048_576, 2
GAMMA, LEARNING_RATE, EXPLORATION, TARGET_EVERY = 0.99, 1e-3, 0.05, 100


class Training:
    """DQN with its CartPoles and its replay buffer on one device."""

    def __init__(self, num_envs: int, batch_size: int, gradient_steps: int, width: int, device: str) -> None:
        torch.manual_seed(0)
        self.batch_size, self.gradient_steps, self.device = batch_size, gradient_steps, device
        layers = nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, ACTIONS)
        self.network = nn.Sequential(*layers).to(device)
        self.frozen = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, eps=1e-5, fused=True)
        self.envs = TensorCartPoles(num_envs, device)
        self.capacity = MEMORY // num_envs * num_envs
        self.observations, self.following = torch.empty(2, self.capacity, 4, device=device)
        self.actions = torch.empty(self.capacity, dtype=torch.int64, device=device)
        self.ended = torch.empty(self.capacity, dtype=torch.bool, device=device)
        self.place, self.filled, self.updates = 0, 0, 0

    def iterate(self) -> None:
        """Step all environments once, then make the updates."""
        self.step()
        for _ in range(self.gradient_steps):
            self.update()

    @torch.no_grad()
    def step(self) -> None:
        """Act epsilon-greedily and store the transitions."""
        seen = self.envs.states
        best = self.network(seen).argmax(1)
        drawn = torch.rand(len(seen), device=self.device) < EXPLORATION
        actions = torch.where(drawn, torch.randint(ACTIONS, best.shape, device=self.device), best)
        group = slice(self.place, self.place + len(seen))
        self.observations[group], self.actions[group] = seen, actions
        self.ended[group] = self.envs.step(actions)
        self.following[group] = self.envs.states
        self.place = group.stop % self.capacity
        self.filled = min(self.filled + len(seen), self.capacity)

    def update(self) -> None:
        """Update on a sampled batch; every reward is 1."""
        rows = torch.randint(self.filled, (self.batch_size,), device=self.device)
        with torch.no_grad():
            following: Tensor = self.frozen(self.following[rows]).amax(1)
            goals = 1.0 + GAMMA * following * (~self.ended[rows]).float()
        values = self.network(self.observations[rows]).gather(1, self.actions[rows][:, None])[:, 0]
        self.optimiser.zero_grad(set_to_none=True)
        smooth_l1_loss(values, goals).backward()
        self.optimiser.step()
        self.updates += 1
        if self.updates % TARGET_EVERY == 0:
            self.frozen.load_state_dict(self.network.state_dict())


def training_on_gpu(num_envs: int, batch_size: int, gradient_steps: int, width: int) -> Callable[[], None]:
    """Return a call that takes one step and makes its updates on a CUDA device."""
    return on_gpu(lambda: Training(num_envs, batch_size, gradient_steps, width, "cuda").iterate)
