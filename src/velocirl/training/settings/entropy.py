"""Settings of a policy with a target entropy: the entropy weight, learned or given."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

from velocirl.training.settings.config import require


@dataclass(frozen=True)
class EntropyConfig:
    """Additional settings of algorithms with entropy regularization."""

    temperature: str | float = "auto"
    """Weight of the entropy; auto learns it to reach target_entropy."""
    target_entropy: float | None = None
    """Entropy that auto aims at. Without it, -1 for each dimension of the action."""

    def check_entropy(self) -> None:
        """Raise for an invalid temperature or target entropy."""
        if isinstance(self.temperature, str):
            require(self.temperature == "auto", "temperature", self.temperature, 'a number, or "auto"')
        else:
            require(0 < self.temperature < inf, "temperature", self.temperature, 'above 0, or "auto"')
        target = self.target_entropy
        require(target is None or -inf < target < inf, "target_entropy", target, "finite")

    @property
    def learns_temperature(self) -> bool:
        """Return whether the temperature is learned."""
        return self.temperature == "auto"

    def entropy_numbers(self, usual: float) -> dict[str, float]:
        """Return the initial log temperature and the target entropy, which is `usual` unless one was given."""
        target = usual if self.target_entropy is None else self.target_entropy
        start = log(self.temperature) if isinstance(self.temperature, (int, float)) else 0.0
        return {"initial_log_temperature": start, "target_entropy": target}
