"""Soft actor-critic (Haarnoja et al., 2018), with twin critics and a temperature that is learnt."""

from __future__ import annotations

from typing import Any, ClassVar

from velocirl.algorithms.online.sac_config import SACConfig
from velocirl.algorithms.online.sac_loss import (
    ACTOR_LOSS,
    LOG_PROBABILITY,
    TEMPERATURE,
    TEMPERATURE_LOSS,
    sac_behaviour,
    sac_loss,
    sac_settings,
)
from velocirl.networks.heads import Head
from velocirl.networks.squashed import squashed_gaussian
from velocirl.training.actor_critic_agent import ActorCriticAgent
from velocirl.training.agent import Row
from velocirl.learners.learner import Report
from velocirl.training.off_policy import ActorCriticLoss, Behaviour
from velocirl.training.twin_critics import CRITIC_LOSS, ERROR, VALUE


class SAC(ActorCriticAgent):
    """Soft actor-critic: learn from memory to earn much while acting as much at random as that allows.

    actor's loss = temperature log pi(a|s) - min Q(s, a). `SAC("Pendulum-v1").learn(20_000)`; the settings are those of
    `SACConfig`.
    """

    name: ClassVar[str] = "sac"
    Config: ClassVar[type[Any]] = SACConfig
    config: SACConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    def make_head(self) -> Head:
        """Actions within their bounds, drawn from a squashed Gaussian."""
        return squashed_gaussian(self.check_actions())

    def make_behaviour(self, write: Any) -> Behaviour:
        """Draws, and noise where that is wanted."""
        return sac_behaviour(self.action_size, self.config.noise_correlation, write)

    def make_loss(self) -> tuple[ActorCriticLoss, Any]:
        """The losses of soft actor-critic."""
        config, size = self.config, self.action_size
        return sac_loss(size, config.learns_temperature), sac_settings(config.target_entropy, size)

    @property
    def initial_temperature(self) -> float:
        """As the configuration says."""
        return self.config.initial_temperature

    def loss_row(self, report: Report) -> Row:
        """The metrics of an iteration in which something was learnt."""
        means = report.means
        row: Row = {
            "train/action_value": float(means[VALUE]),
            "train/actor_loss": float(means[ACTOR_LOSS]),
            "train/critic_loss": float(means[CRITIC_LOSS]),
            "train/ent_coef": float(means[TEMPERATURE]),
            "train/entropy": -float(means[LOG_PROBABILITY]),
            "train/td_error": float(means[ERROR]),
        }
        if self.config.learns_temperature:
            row["train/ent_coef_loss"] = float(means[TEMPERATURE_LOSS])
        return row
