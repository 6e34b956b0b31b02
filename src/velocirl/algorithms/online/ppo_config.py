"""The settings of PPO and of A2C, with their meanings, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from velocirl.networks.specs import parse_network
from velocirl.optim.optimisers import optimiser_from
from velocirl.optim.schedules import schedule_from
from velocirl.training.config import is_own_module, require


@dataclass(frozen=True)
class PPOConfig:
    """The settings of PPO. Those of an environment's preset stand in for the defaults."""

    num_envs: int = 32
    """Copies of the environment that are stepped together."""
    horizon: int = 64
    """Steps that each copy takes in a rollout."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatch_size: int = 128
    """Samples in a minibatch; a rollout is cut into equal ones of about this size."""
    minibatches: Literal["samples", "environments"] = "samples"
    """What is drawn at random: single samples, or whole rollouts of single copies."""
    gradient_accumulation: int = 1
    """Minibatches whose mean gradient makes one optimiser step."""
    learning_rate: float = 3e-3
    learning_rate_schedule: str = "linear"
    """How the learning rate changes: constant, linear, cosine(end=0.1), warmup(0.05) cosine, ..."""
    optimiser: str = "adam"
    """adam, adamw(weight_decay=0.01), sgd(momentum=0.9), rmsprop, ..."""
    gamma: float = 0.99
    """Discount of the future."""
    gae_lambda: float = 0.95
    estimator: Literal["gae", "vtrace"] = "gae"
    """Advantages by GAE, or by V-trace, which follows the policy from epoch to epoch."""
    rho_limit: float = 1.0
    """V-trace: the largest weight of a single error."""
    c_limit: float = 1.0
    """V-trace: the largest weight of what follows."""
    clip: float = 0.2
    """How far a probability may move from what it was; 0 is no limit."""
    value_clip: float = 0.0
    """How far a value may move from what it was; 0 is no limit."""
    dual_clip: float = 0.0
    """The largest ratio that counts where the advantage is negative, above 1; 0 is no limit."""
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.5
    target_kl: float = 0.0
    """Stop an update when the policy has moved this far; 0 is never."""
    max_grad_norm: float = 0.5
    """Clip the gradient to this norm; 0 is off."""
    max_grad_value: float = 0.0
    """Clip each number of the gradient to this; 0 is off."""
    normalise_advantages: bool = True
    normalise_observations: bool = False
    normalise_rewards: bool = False
    network: str | dict[str, str] | None = None
    """A torch network, such as cnn(16, 32) mlp(128) or mlp(64) lstm(64); without it, the native one of `hidden`."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    activation: str = "tanh"
    initialiser: str = "orthogonal"
    shared: bool = False
    """One network for policy and value, or two."""
    log_deviation: float = 0.0
    """Logarithm of the first standard deviation of continuous actions, in units of half their range."""
    params: dict[str, float] | None = None
    """Parameters of the environment that differ from its own, for all copies."""
    seed: int | None = None
    threads: int | None = None
    """CPU threads; the cores of this machine unless given. Results depend on their number."""
    workers: int | None = None
    """Processes for a gym: environment; without them it runs in this one."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes the GPU where that is faster."""
    precision: Literal["auto", "float32", "tf32", "bf16", "fp16"] = "auto"
    """Of a torch network's products; auto is tf32 on a GPU, else float32. Parameters are always float32."""
    compile: bool = False
    """Let torch.compile have the torch network."""
    overlap: bool = False
    """Collect the next rollout while learning from the last, corrected by V-trace."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "horizon", "epochs", "minibatch_size", "gradient_accumulation"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("threads", "workers"):
            require(getattr(self, name) is None or getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.learning_rate < inf, "learning_rate", self.learning_rate, "above 0")
        for name in ("gamma", "gae_lambda"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "from 0 to 1")
        for name in ("rho_limit", "c_limit"):
            require(0 < getattr(self, name) < inf, name, getattr(self, name), "above 0")
        coefficients = ("clip", "value_clip", "entropy_coefficient", "value_coefficient", "target_kl")
        for name in (*coefficients, "max_grad_norm", "max_grad_value"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        require(self.dual_clip == 0 or 1 < self.dual_clip < inf, "dual_clip", self.dual_clip, "above 1, or 0 for off")
        require(all(width >= 1 for width in self.hidden), "hidden", self.hidden, "widths of at least 1")
        require(self.seed is None or self.seed >= 0, "seed", self.seed, "at least 0")
        require(-5 <= self.log_deviation <= 2, "log_deviation", self.log_deviation, "from -5 to 2")
        require(not self.overlap or self.estimator == "vtrace", "estimator", self.estimator, "vtrace with overlap")
        if self.network is not None and not is_own_module(self.network):
            parse_network(self.network)
        optimiser_from(self.optimiser)
        schedule_from(self.learning_rate_schedule)

    @property
    def batch(self) -> int:
        """Samples of a rollout."""
        return self.num_envs * self.horizon

    @property
    def num_minibatches(self) -> int:
        """Minibatches of an epoch."""
        most = self.num_envs if self.minibatches == "environments" else self.batch
        return min(max(round(self.batch / self.minibatch_size), 1), most)


@dataclass(frozen=True)
class A2CConfig(PPOConfig):
    """The settings of A2C: PPO with one pass over short rollouts, where the ratio is 1 and nothing is clipped."""

    horizon: int = 8
    epochs: int = 1
    minibatch_size: int = 2**31 - 1
    learning_rate: float = 7e-4
    optimiser: str = "rmsprop"
    gae_lambda: float = 1.0
    clip: float = 0.0
    entropy_coefficient: float = 0.0
    normalise_advantages: bool = False
