"""The settings of TD3, with their meanings, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.training.actor_critic_config import ActorCriticConfig
from velocirl.training.config import require


@dataclass(frozen=True)
class TD3Config(ActorCriticConfig):
    """The settings of TD3. Those of an environment's preset stand in for the defaults."""

    actor_every: int = 2
    noise: float = 0.1
    smoothing: float = 0.2
    """Deviation of the noise on the action whose value the critics learn from; half the range is 1."""
    smoothing_limit: float = 0.5
    """The most of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("smoothing", "smoothing_limit"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
