"""DQN on the native network: how its parts are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.algorithms.online.dqn_config import DQNConfig
from velocirl.algorithms.online.dqn_loss import ActionValues, LossSettings, dqn_loss, dqn_target
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.commands import writer_for
from velocirl.training.off_policy import Behaviour, ValueLoss
from velocirl.training.off_policy_machine import OffPolicyMachine
from velocirl.training.value_updating import ValueUpdater

if TYPE_CHECKING:
    from velocirl.algorithms.online.dqn import DQN


def make_network(config: DQNConfig, inputs: int, count: int) -> MLP:
    """A column for each action and, with dueling, one for the value of the state."""
    value = (Segment(count, 1),) if config.dueling else ()
    return MLP(inputs, (Chain(config.hidden, (Segment(0, count), *value)),), config.activation, config.initialiser)


def behaviour_of(values: ActionValues, action_space: Any) -> Behaviour:
    """How DQN acts in training: a random action now and then, else the best."""
    return Behaviour(values.draw, values.act, writer_for(action_space))


def loss_of(config: DQNConfig, values: ActionValues) -> tuple[ValueLoss, LossSettings]:
    """What DQN learns."""
    loss = ValueLoss(dqn_target(values, config.double), config.double, dqn_loss(values))
    return loss, LossSettings(np.float32(config.huber))


def make_native_machine(agent: DQN) -> OffPolicyMachine:
    """Copies of the environment, a memory and a learner, all compiled."""
    config, source, seeds = agent.config, agent.source, agent.seeds
    assert config.threads is not None  # noqa: S101 - resolved in the constructor
    envs = source.make_copies(config.num_envs, seed=seeds.environment, threads=1, workers=config.workers)
    optimiser = optimiser_from(config.optimiser)
    loss, settings = loss_of(config, agent.values)
    return OffPolicyMachine(
        envs,
        config,
        agent.head,
        agent.encoding,
        behaviour_of(agent.values, source.action_space),
        ValueUpdater(agent.policy.network, agent.policy.parameters, optimiser, loss, settings, config.threads),
        most_steps=agent.steps_of_iteration,
        seeds=(seeds.policy, seeds.learner),
        recent=agent.recent_returns.maxlen or 0,
        phases=agent.phases,
    )
