"""What agents have in common that learn from single transitions, remembered or recorded."""

from __future__ import annotations

from typing import ClassVar

from gymnasium.spaces import Box, Discrete

from velocirl.networks.encoding import are_scale
from velocirl.scale.launching import launch_of
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.settings.parallelism import cores_of, shares_for, threads_for


class TransitionAgent(DeepAgent):
    """Learns from transitions, each by itself."""

    # What to use where actions are of the other kind.
    for_choices: ClassVar[str] = "PPO, or DQN for a single choice"
    for_numbers: ClassVar[str] = "SAC, TD3 or PPO"

    def parallelism(self) -> dict[str, int]:
        """The shares of an update, and the threads that may work on them, unless the settings say."""
        config = self.config
        rows = config.effective_batch_size // launch_of(config.runtime).size
        shares = config.shares or shares_for(rows, self.num_parameters, cores_of(config.runtime))
        threads = config.threads or min(threads_for(config), shares)
        return {"shares": shares, "threads": threads}

    def shared_out(self) -> dict[str, int]:
        """Each rank draws its share of a batch."""
        return {**super().shared_out(), "batch_size": self.config.effective_batch_size}

    def row_names(self) -> list[str]:
        """What is known of a transition that was drawn."""
        return ["observation", "action", "reward", "discount", "weight", "error", "mask", "next_observation",
                "next_mask"]  # fmt: skip

    def check_choices(self) -> int:
        """How many actions there are to choose from; refuses what is no single choice."""
        self.source.refuse_parts(self.label)
        space = self.source.action_space
        if not isinstance(space, Discrete):
            raise ValueError(
                f"{self.label} chooses one of several actions, and those of {self.source.id} are {space}: use"
                f" {self.for_numbers}"
            )
        return int(space.n)

    def check_numbers(self) -> int:
        """The numbers of an action; refuses what is not a flat, bounded box of them."""
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
