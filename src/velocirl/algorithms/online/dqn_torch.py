"""DQN on a torch network: how its parts are put together for the CPU and for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.algorithms.online.dqn_config import DQNConfig
from velocirl.algorithms.online.dqn_native import behaviour_of, loss_of
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.torch_checks import check_module
from velocirl.networks.torch_modules import build_columns
from velocirl.networks.torch_network import TorchNetwork
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy import TorchOffPolicyMachine
from velocirl.training.torch_off_policy_making import assemble, network_on, own_module, single_steps
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing
from velocirl.training.torch_policy import TorchPolicy
from velocirl.training.torch_value import ValueUpdate

if TYPE_CHECKING:
    from velocirl.algorithms.online.dqn import DQN


def make_torch_policy(
    config: DQNConfig, encoding: Encoding, head: Head, generator: np.random.Generator, module: Any
) -> TorchPolicy:
    """The values of actions by a description, or by a user's own module."""
    name = "the network"
    if own_module(config.network, module, "network"):
        name = type(module).__qualname__
    else:
        assert config.network is not None  # noqa: S101 - else the network is native
        module = build_columns(
            single_steps(config.network, "dqn"),
            encoding,
            [(head.outputs, 1.0), *([(1, 1.0)] if config.dueling else [])],
            activation=config.activation,
            initialiser=config.initialiser,
            generator=generator,
        )
    network = TorchNetwork(module, encoding, head, "cpu", has_value=config.dueling)
    if network.state_size:
        raise ValueError(f"{name} has a state_size, but DQN draws single steps from its memory: use PPO")
    check_module(network, encoding, head, name)
    return TorchPolicy(network)


def make_torch_machine(agent: DQN) -> TorchOffPolicyMachine:
    """Copies of the environment, a memory and a learner; on a GPU, captured as graphs."""
    config = agent.config
    loss, settings = loss_of(config, agent.values)

    def make_update(device: Device, clock: TorchClock, ring: TorchRing) -> ValueUpdate:
        network = network_on(agent, device, has_value=config.dueling)
        optimiser = optimiser_from(config.optimiser)
        return ValueUpdate(
            device, network, loss, settings, optimiser, ring, clock, limits_values=config.max_grad_value > 0
        )

    return assemble(agent, behaviour_of(agent.values, agent.source.action_space), make_update)
