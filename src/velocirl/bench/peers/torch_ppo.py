"""PPO written by hand in eager torch, on the CPU or on a GPU.

On the CPU, a compiled loop over all environments samples actions and steps the CartPoles. On a GPU, operations on
tensors do so without leaving the device. A time limit counts as a terminal state here, which saves evaluating final
observations.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, pi, sin
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports] - a peer, where installed
from numba import njit, prange
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn.functional import log_softmax  # pyright: ignore[reportMissingImports]

HIDDEN, ACTIONS, THREADS = 64, 2, 2
GAMMA, GAE_LAMBDA, CLIP, VALUE_COEFFICIENT, ENTROPY_COEFFICIENT = 0.99, 0.95, 0.2, 0.5, 0.01
LEARNING_RATE, MAX_GRADIENT_NORM = 1e-3, 0.5
TIME_LIMIT, ANGLE_LIMIT = 500, 12 * pi / 180


class Network(nn.Module):
    """Tanh trunk shared by policy and value; the last layer outputs logits and, in its last column, the value."""

    def __init__(self) -> None:
        super().__init__()
        first, second, last = nn.Linear(4, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, ACTIONS + 1)
        for layer in (first, second):
            nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.orthogonal_(last.weight[:ACTIONS], 0.01)
        nn.init.orthogonal_(last.weight[ACTIONS:], 1.0)
        for layer in (first, second, last):
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities (rows, 2) and values (rows,)."""
        outputs = self.layers(observations)
        return log_softmax(outputs[:, :ACTIONS], 1), outputs[:, ACTIONS]


class TensorCartPoles:
    """Gymnasium's CartPole-v1 as tensor operations on a device, all environments at once."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.states = self._fresh(torch.empty(num_envs, 4, device=device))
        self.lengths = torch.zeros(num_envs, dtype=torch.int32, device=device)

    def act(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sample actions and step; returns actions, log-probabilities, and which episodes ended."""
        drawn = torch.rand_like(log_probabilities[:, 0])
        actions = (drawn >= log_probabilities[:, 0].exp()).long()
        chosen = log_probabilities.gather(1, actions[:, None])[:, 0]
        return actions, chosen, self.step(actions)

    def step(self, actions: Tensor) -> Tensor:
        """Step; environments whose episodes ended are reset. Returns which episodes ended."""
        _, velocity, angle, angular_velocity = self.states.unbind(1)
        force = actions * 20.0 - 10.0
        cosine, sine = angle.cos(), angle.sin()
        thrust = (force + 0.05 * angular_velocity**2 * sine) / 1.1
        angular_acceleration = (9.8 * sine - cosine * thrust) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        acceleration = thrust - 0.05 * angular_acceleration * cosine / 1.1
        rates = torch.stack([velocity, acceleration, angular_velocity, angular_acceleration], 1)
        after = self.states + 0.02 * rates
        self.lengths += 1
        fallen = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > ANGLE_LIMIT)
        ended = fallen | (self.lengths >= TIME_LIMIT)
        self.states = torch.where(ended[:, None], self._fresh(after), after)
        self.lengths.masked_fill_(ended, 0)
        return ended

    @staticmethod
    def _fresh(like: Tensor) -> Tensor:
        return torch.empty_like(like).uniform_(-0.05, 0.05)


class CompiledCartPoles:
    """Gymnasium's CartPole-v1 in main memory, stepped by a compiled loop; tensors and arrays share memory."""

    def __init__(self, num_envs: int) -> None:
        self.states = torch.empty(num_envs, 4).uniform_(-0.05, 0.05)
        self.lengths = torch.zeros(num_envs, dtype=torch.int32)
        self._streams = np.random.default_rng(0).integers(1, 2**63, num_envs, np.uint64)

    def act(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sample actions and step; returns actions, log-probabilities, and which episodes ended."""
        num_envs = len(self.states)
        actions, chosen = np.empty(num_envs, np.int64), np.empty(num_envs, np.float32)
        ended = np.empty(num_envs, np.bool_)
        logarithms = log_probabilities.numpy()
        act_all(logarithms, self.states.numpy(), self.lengths.numpy(), self._streams, actions, chosen, ended)
        return torch.from_numpy(actions), torch.from_numpy(chosen), torch.from_numpy(ended)


@njit(parallel=True, fastmath=True, error_model="numpy")
def act_all(
    log_probabilities: Any, states: Any, lengths: Any, streams: Any, actions: Any, chosen: Any, ended: Any
) -> None:
    """Sample an action in every environment and step; reset those whose episodes ended."""
    for i in prange(len(states)):
        action = 0 if uniform(streams, i) < exp(log_probabilities[i, 0]) else 1
        actions[i], chosen[i] = action, log_probabilities[i, action]
        fallen = step_one(states[i], action)
        lengths[i] += 1
        ended[i] = fallen or lengths[i] >= TIME_LIMIT
        if ended[i]:
            lengths[i] = 0
            for k in range(4):
                states[i, k] = np.float32(0.1) * uniform(streams, i) - np.float32(0.05)


@njit(fastmath=True, error_model="numpy")
def step_one(state: Any, action: Any) -> bool:
    """Step one CartPole in single precision; returns whether it fell."""
    angle, angular_velocity = state[2], state[3]
    force = np.float32(10.0) if action == 1 else np.float32(-10.0)
    cosine, sine = cos(angle), sin(angle)
    thrust = (force + np.float32(0.05) * angular_velocity * angular_velocity * sine) * np.float32(1 / 1.1)
    inertia = np.float32(0.5) * (np.float32(4 / 3) - np.float32(0.1 / 1.1) * cosine * cosine)
    angular_acceleration = (np.float32(9.8) * sine - cosine * thrust) / inertia
    acceleration = thrust - np.float32(0.05 / 1.1) * angular_acceleration * cosine
    state[0] += np.float32(0.02) * state[1]
    state[1] += np.float32(0.02) * acceleration
    state[2] += np.float32(0.02) * angular_velocity
    state[3] += np.float32(0.02) * angular_acceleration
    return abs(state[0]) > np.float32(2.4) or abs(state[2]) > np.float32(ANGLE_LIMIT)


@njit(fastmath=True, error_model="numpy")
def uniform(streams: Any, i: int) -> Any:
    """Return the next number in [0, 1) of an environment's random stream."""
    stream = streams[i]
    stream ^= stream << np.uint64(13)
    stream ^= stream >> np.uint64(7)
    stream ^= stream << np.uint64(17)
    streams[i] = stream
    return np.float32(stream >> np.uint64(40)) * np.float32(2.0**-24)


def estimate(values: Tensor, ended: Tensor, last_values: Tensor) -> Tensor:
    """Compute GAE advantages where every reward is 1; all tensors are (horizon, num_envs)."""
    advantages = torch.empty_like(values)
    going_on = (~ended).float()
    advantage, next_values = torch.zeros_like(last_values), last_values
    for t in range(len(values) - 1, -1, -1):
        delta = 1.0 + GAMMA * next_values * going_on[t] - values[t]
        advantage = delta + GAMMA * GAE_LAMBDA * going_on[t] * advantage
        advantages[t], next_values = advantage, values[t]
    return advantages


class Training:
    """PPO with its CartPoles on one device."""

    def __init__(self, num_envs: int, horizon: int, epochs: int, minibatch_size: int, device: str) -> None:
        torch.manual_seed(0)
        self.horizon, self.epochs, self.minibatch_size, self.device = horizon, epochs, minibatch_size, device
        self.envs = CompiledCartPoles(num_envs) if device == "cpu" else TensorCartPoles(num_envs, device)
        self.network = Network().to(device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, eps=1e-5, fused=True)
        shape = (horizon, num_envs)
        self.observations = torch.empty(*shape, 4, device=device)
        self.actions = torch.empty(shape, dtype=torch.int64, device=device)
        self.chosen, self.values = torch.empty(2, *shape, device=device)
        self.ended = torch.empty(shape, dtype=torch.bool, device=device)

    def iterate(self) -> None:
        """Collect a rollout, estimate advantages, update."""
        with torch.no_grad():
            last_values = self.collect()
            advantages = estimate(self.values, self.ended, last_values)
        rollout = (self.observations, self.actions, self.chosen, advantages, advantages + self.values)
        samples = [tensor.flatten(0, 1) for tensor in rollout]
        for _ in range(self.epochs):
            order = torch.randperm(advantages.numel(), device=self.device)
            for rows in order.split(self.minibatch_size):
                self.optimiser.zero_grad(set_to_none=True)
                self.loss(*(tensor.index_select(0, rows) for tensor in samples)).backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), MAX_GRADIENT_NORM)
                self.optimiser.step()

    def collect(self) -> Tensor:
        """Collect a rollout; returns the values of the observations after it."""
        for t in range(self.horizon):
            self.observations[t] = self.envs.states
            log_probabilities, self.values[t] = self.network(self.observations[t])
            self.actions[t], self.chosen[t], self.ended[t] = self.envs.act(log_probabilities)
        return self.network(self.envs.states)[1]

    def loss(
        self, observations: Tensor, actions: Tensor, chosen: Tensor, advantages: Tensor, targets: Tensor
    ) -> Tensor:
        """Compute PPO's loss of a minibatch with normalized advantages."""
        log_probabilities, values = self.network(observations)
        ratios = (log_probabilities.gather(1, actions[:, None])[:, 0] - chosen).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -torch.min(ratios * advantages, ratios.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        value_loss = 0.5 * ((values - targets) ** 2).mean()
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
        return policy_loss + VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * entropy


def training(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], None]:
    """Return a call that runs one iteration on two CPU threads."""
    torch.set_num_threads(THREADS)
    return Training(num_envs, horizon, epochs, minibatch_size, "cpu").iterate


def training_on_gpu(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], None]:
    """Return a call that runs one iteration on a CUDA device."""
    return on_gpu(lambda: Training(num_envs, horizon, epochs, minibatch_size, "cuda").iterate)


def on_gpu(make: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Return a call of the function that `make` builds, synchronized with the GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU here")
    torch.set_float32_matmul_precision("high")  # TF32, JAX's default
    iterate = make()

    def call() -> None:
        iterate()
        torch.cuda.synchronize()

    return call
