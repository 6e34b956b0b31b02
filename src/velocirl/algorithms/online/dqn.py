"""Deep Q-learning (Mnih et al., 2015), with double and dueling networks, priorities and returns over n steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from velocirl.algorithms.online.dqn_config import DQNConfig
from velocirl.algorithms.online.dqn_loss import (
    ACTION_VALUE,
    ERROR,
    LOSS,
    ActionValues,
    action_values,
    epsilon_greedy_head,
)
from velocirl.algorithms.online.dqn_native import make_native_machine, make_network
from velocirl.networks.heads import Head
from velocirl.training.agent import Row
from velocirl.training.deep_agent import layers_alone
from velocirl.learners.learner import Machine, Report
from velocirl.training.native_policy import NativePolicy
from velocirl.training.off_policy_agent import OffPolicyAgent
from velocirl.learners.pace import exploration_at


class DQN(OffPolicyAgent):
    """Deep Q-learning: act, remember, and learn the values of actions from what is remembered.

    loss = huber(Q(s, a) - (r + gamma Q_frozen(s', a'))), a' the best action at s'. `DQN("CartPole-v1").learn(50_000)`;
    the settings are those of `DQNConfig`. Outside of training, and unless it is asked to be deterministic, it takes a
    random action with the probability `exploration_final`.
    """

    name: ClassVar[str] = "dqn"
    Config: ClassVar[type[Any]] = DQNConfig
    config: DQNConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def count(self) -> int:
        """How many actions there are."""
        space = self.source.action_space
        if not isinstance(space, Discrete):
            raise ValueError(
                f"DQN chooses one of several actions, and those of {self.source.id} are {space}: use SAC, TD3 or PPO"
            )
        return int(space.n)

    @cached_property
    def values(self) -> ActionValues:
        """How the network's output is read as the values of actions."""
        return action_values(self.count, self.source.masked, self.config.dueling)

    @property
    def exploration(self) -> tuple[float, float, float, float]:
        """The probability of a random action."""
        config = self.config
        last = config.exploration_final if config.exploration_last is None else config.exploration_last
        return config.exploration_initial, config.exploration_final, config.exploration_fraction, last

    @property
    def targets(self) -> tuple[int, int, float]:
        """There is no actor."""
        return 1, self.config.target_every, self.config.tau

    def make_head(self) -> Head:
        """The best action or, where one is drawn, a random one with a probability."""
        return epsilon_greedy_head(self.count, self.source.masked, self.values, self.config.exploration_final)

    def make_policy(self, modules: Mapping[str, Any]) -> Any:
        """A policy; that of layers alone needs no torch to act, whichever trains it."""
        config, generator = self.config, np.random.default_rng(self.seeds.initial)
        widths = layers_alone(config.network, self.encoding)
        if widths is not None:
            config = dataclasses.replace(config, hidden=widths)
        if config.network is None or widths is not None:
            return NativePolicy(make_network(config, self.encoding.inputs, self.count), generator)
        from velocirl.algorithms.online.dqn_torch import make_torch_policy  # needs torch

        return make_torch_policy(config, self.encoding, self.head, generator, modules.get("network"))

    def make_machine(self) -> Machine:
        """The native machine, or torch's where the network or the device asks for it."""
        if self.is_native and self.config.device == "cpu":
            return make_native_machine(self)
        from velocirl.algorithms.online.dqn_torch import make_torch_machine  # needs torch

        return make_torch_machine(self)

    def loss_row(self, report: Report) -> Row:
        """Loss, value and error of the transitions that were drawn."""
        means = report.means
        return {
            "train/action_value": float(means[ACTION_VALUE]),
            "train/loss": float(means[LOSS]),
            "train/td_error": float(means[ERROR]),
        }

    def row(self, report: Report) -> Row:
        """The metrics of an iteration, and how much is explored after it."""
        pace = self.pace(1)
        rate = 1.0 if report.steps < pace.learning_starts else float(exploration_at(report.steps, pace))
        return {"rollout/exploration_rate": rate, **super().row(report)}
