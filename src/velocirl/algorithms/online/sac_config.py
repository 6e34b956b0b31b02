"""The settings of soft actor-critic, with their meanings, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.training.actor_critic_config import ActorCriticConfig
from velocirl.training.config import require


@dataclass(frozen=True)
class SACConfig(ActorCriticConfig):
    """The settings of SAC. Those of an environment's preset stand in for the defaults."""

    temperature: str | float = "auto"
    """What a unit of entropy is worth; auto learns it, so that the entropy becomes target_entropy."""
    target_entropy: float | None = None
    """The entropy that auto aims at; without it, -1 for each number of an action."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.temperature, str):
            require(self.temperature == "auto", "temperature", self.temperature, 'a number, or "auto"')
        else:
            require(0 < self.temperature < inf, "temperature", self.temperature, 'above 0, or "auto"')
        target = self.target_entropy
        require(target is None or -inf < target < inf, "target_entropy", target, "finite")

    @property
    def learns_temperature(self) -> bool:
        """Whether the temperature is learnt."""
        return self.temperature == "auto"

    @property
    def initial_temperature(self) -> float:
        """The temperature at first."""
        return 1.0 if isinstance(self.temperature, str) else self.temperature
