"""TD3, twin delayed deep deterministic policy gradient (Fujimoto et al., 2018)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from velocirl.algorithms.online.td3_config import TD3Config
from velocirl.algorithms.online.td3_loss import ACTOR_LOSS, TD3Settings, td3_behaviour, td3_loss
from velocirl.networks.heads import Head
from velocirl.networks.squashed import squashed_value
from velocirl.training.actor_critic_agent import ActorCriticAgent
from velocirl.training.agent import Row
from velocirl.learners.learner import Report
from velocirl.training.off_policy import ActorCriticLoss, Behaviour
from velocirl.training.twin_critics import CRITIC_LOSS, ERROR, VALUE


class TD3(ActorCriticAgent):
    """Twin delayed deep deterministic policy gradient: one action for each state, improved along its value.

    actor's loss = -Q_1(s, pi(s)), learnt more slowly than the critics. `TD3("Pendulum-v1").learn(20_000)`; the settings
    are those of `TD3Config`.
    """

    name: ClassVar[str] = "td3"
    Config: ClassVar[type[Any]] = TD3Config
    config: TD3Config  # pyright: ignore[reportIncompatibleVariableOverride]

    def make_head(self) -> Head:
        """Actions within their bounds; what is drawn differs by the noise of training, uncorrelated."""
        return squashed_value(self.check_actions(), self.config.noise)

    def make_behaviour(self, write: Any) -> Behaviour:
        """The actor's own action, and noise."""
        return td3_behaviour(self.action_size, self.config.noise_correlation, write)

    def make_loss(self) -> tuple[ActorCriticLoss, Any]:
        """The losses of TD3."""
        config = self.config
        return td3_loss(self.action_size), TD3Settings(np.float32(config.smoothing), np.float32(config.smoothing_limit))

    def loss_row(self, report: Report) -> Row:
        """The metrics of an iteration in which something was learnt."""
        means = report.means
        return {
            "train/action_value": float(means[VALUE]),
            "train/actor_loss": float(means[ACTOR_LOSS]),
            "train/critic_loss": float(means[CRITIC_LOSS]),
            "train/td_error": float(means[ERROR]),
        }
