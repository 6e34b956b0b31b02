"""Base class of agents that learn from single transitions, replayed or recorded."""

from __future__ import annotations

from typing import ClassVar

from gymnasium.spaces import Box, Discrete

from velocirl.networks.encoding import are_scale
from velocirl.scale.launching import launch_of
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.settings.parallelism import cores_of, shares_for, threads_for


class TransitionAgent(DeepAgent):
    """Agent that learns from single transitions."""

    # Algorithms to suggest for the other kind of actions.
    for_choices: ClassVar[str] = "PPO, or DQN for a single choice"
    for_numbers: ClassVar[str] = "SAC, TD3 or PPO"

    def parallelism(self) -> dict[str, int]:
        """Return the number of shares of an update and of threads that work on them, unless the settings fix them."""
        config = self.config
        rows = config.effective_batch_size // launch_of(config.runtime).size
        shares = config.shares or shares_for(rows, self.num_parameters, cores_of(config.runtime))
        threads = config.threads or min(threads_for(config), shares)
        return {"shares": shares, "threads": threads}

    def shared_out(self) -> dict[str, int]:
        """Return the sharded settings; each rank samples its share of a batch."""
        return {**super().shared_out(), "batch_size": self.config.effective_batch_size}

    def row_names(self) -> list[str]:
        """Return the fields of a sampled transition."""
        return ["observation", "action", "reward", "discount", "weight", "error", "mask", "next_observation",
                "next_mask"]  # fmt: skip

    def check_choices(self) -> int:
        """Return the number of actions; raises unless an action is a single choice."""
        self.source.refuse_parts(self.label)
        space = self.source.action_space
        if not isinstance(space, Discrete):
            raise ValueError(
                f"{self.label} chooses one of several actions, and those of {self.source.id} are {space}: use"
                f" {self.for_numbers}"
            )
        return int(space.n)

    def check_numbers(self) -> int:
        """Return the dimension of an action; raises unless the action space is a flat, bounded Box of floats."""
        self.source.refuse_parts(self.label)
        space = self.source.action_space
        if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype.kind != "f":
            raise ValueError(
                f"{self.label} needs actions that are a flat Box of floats, and those of {self.source.id} are {space}:"
                f" use {self.for_choices}"
            )
        if not are_scale(space.low, space.high).all():
            lacking = "with one so huge that it is no scale" if space.is_bounded() else "without one"
            raise ValueError(
                f"{self.label} acts between bounds, and the actions of {self.source.id} are {space}, {lacking}:"
                " give the space bounds, or use PPO"
            )
        return space.shape[0]
