"""The settings that SAC and TD3 share."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.networks.specs import parse_network
from velocirl.training.config import is_own_module, require
from velocirl.training.off_policy_config import OffPolicyConfig


@dataclass(frozen=True)
class ActorCriticConfig(OffPolicyConfig):
    """Learning from a memory with an actor and two critics."""

    num_envs: int = 1
    train_every: int = 1
    batch_size: int = 256
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    critic: str | dict[str, str] | None = None
    """A torch network for each of the two critics; without it, one as the actor's."""
    actor_every: int = 1
    """Updates of the critics from one of the actor to the next."""
    target_every: int = 1
    """Updates from one move of the frozen networks to the next."""
    tau: float = 0.005
    """How far the frozen networks move towards the others then; 1 is a copy."""
    noise: float = 0.0
    """Deviation of noise on the actions of training, in units of half their range."""
    noise_correlation: float = 0.0
    """Correlation of that noise from one step to the next: 0 is white noise, near 1 it pushes for long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actor_every", "target_every"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")
        require(0 <= self.noise < inf, "noise", self.noise, "at least 0")
        require(0 <= self.noise_correlation < 1, "noise_correlation", self.noise_correlation, "at least 0 and below 1")
        if self.critic is not None and not is_own_module(self.critic):
            parse_network(self.critic)
