"""The settings that all algorithms share which learn from a memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from velocirl.networks.specs import parse_network
from velocirl.optim.optimisers import optimiser_from
from velocirl.optim.schedules import schedule_from
from velocirl.training.config import is_own_module, require


@dataclass(frozen=True)
class OffPolicyConfig:
    """The settings of learning from a memory. Those of an environment's preset stand in for the defaults."""

    num_envs: int = 8
    """Copies of the environment that are stepped together."""
    buffer_size: int = 100_000
    """Transitions that are remembered."""
    buffer_file: str | None = None
    """A file that the memory is mapped to, for one larger than the machine's; without it, it lies in memory."""
    learning_starts: int = 1000
    """Steps with random actions before the first update."""
    train_every: int = 4
    """Environment steps, counted over all copies, from one round of updates to the next."""
    gradient_steps: int = 1
    """Updates of a round: gradient_steps / train_every updates for each step."""
    batch_size: int = 64
    """Transitions of an update."""
    learning_rate: float = 1e-3
    learning_rate_schedule: str = "constant"
    """How the learning rate changes: constant, linear, cosine(end=0.1), warmup(0.05) cosine, ..."""
    optimiser: str = "adam"
    """adam, adamw(weight_decay=0.01), sgd(momentum=0.9), rmsprop, ..."""
    gamma: float = 0.99
    """Discount of the future."""
    n_step: int = 1
    """Rewards that are taken as they came before the target network is asked."""
    priority: Literal["none", "proportional", "rank"] = "none"
    """Draw what surprised most more often: in proportion to the error, or by its rank."""
    priority_alpha: float = 0.6
    """How much: 0 is not at all."""
    priority_beta: float = 0.4
    """How much of that the weights in the loss take back, at first."""
    priority_beta_final: float = 1.0
    """The same at the end of training, reached in a straight line."""
    max_grad_norm: float = 0.0
    """Clip the gradient to this norm; 0 is off."""
    max_grad_value: float = 0.0
    """Clip each number of the gradient to this; 0 is off."""
    network: str | dict[str, str] | None = None
    """A torch network, such as cnn(16, 32) mlp(128); without it, the native one of `hidden`."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    activation: str = "relu"
    initialiser: str = "orthogonal"
    params: dict[str, float] | None = None
    """Parameters of the environment that differ from its own, for all copies."""
    seed: int | None = None
    threads: int | None = None
    """CPU threads; as many as make an update faster unless given. Results depend on their number."""
    workers: int | None = None
    """Processes for a gym: environment; without them it runs in this one."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes the GPU where that is faster."""
    precision: Literal["auto", "float32", "tf32", "bf16", "fp16"] = "auto"
    """Of a torch network's products; auto is tf32 on a GPU, else float32. Parameters are always float32."""
    compile: bool = False
    """Let torch.compile have the torch network."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "buffer_size", "train_every", "gradient_steps", "batch_size", "n_step"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.learning_starts >= 0, "learning_starts", self.learning_starts, "at least 0")
        require(self.buffer_size >= self.num_envs, "buffer_size", self.buffer_size, "at least num_envs")
        for name in ("threads", "workers"):
            require(getattr(self, name) is None or getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.learning_rate < inf, "learning_rate", self.learning_rate, "above 0")
        for name in ("gamma", "priority_alpha", "priority_beta", "priority_beta_final"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "from 0 to 1")
        for name in ("max_grad_norm", "max_grad_value"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        require(all(width >= 1 for width in self.hidden), "hidden", self.hidden, "widths of at least 1")
        require(self.seed is None or self.seed >= 0, "seed", self.seed, "at least 0")
        if self.network is not None and not is_own_module(self.network):
            parse_network(self.network)
        optimiser_from(self.optimiser)
        schedule_from(self.learning_rate_schedule)
