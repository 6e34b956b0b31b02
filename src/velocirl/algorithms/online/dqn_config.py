"""The settings of DQN, with their meanings, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.training.config import require
from velocirl.training.off_policy_config import OffPolicyConfig


@dataclass(frozen=True)
class DQNConfig(OffPolicyConfig):
    """The settings of DQN. Those of an environment's preset stand in for the defaults."""

    max_grad_norm: float = 10.0
    """Clip the gradient to this norm; 0 is off."""
    double: bool = True
    """The network chooses the action that the target network values."""
    dueling: bool = True
    """The network tells the value of a state and the advantages of actions apart."""
    huber: float = 1.0
    """The error from which the loss is a straight line; 0 is a squared error."""
    target_every: int = 125
    """Updates from one move of the target network to the next."""
    tau: float = 1.0
    """How far the target network moves towards the network then; 1 is a copy."""
    exploration_initial: float = 1.0
    """Probability of a random action at first."""
    exploration_final: float = 0.05
    """The same after `exploration_fraction` of training, reached in a straight line."""
    exploration_fraction: float = 0.1
    exploration_last: float | None = None
    """A second straight line, from there to this at the end of training; without it, exploration_final stays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.target_every >= 1, "target_every", self.target_every, "at least 1")
        shares = ("exploration_initial", "exploration_final", "exploration_fraction", "exploration_last")
        for name in shares:
            value = getattr(self, name)
            require(value is None or 0 <= value <= 1, name, value, "from 0 to 1")
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")
        require(0 <= self.huber < inf, "huber", self.huber, "at least 0")
