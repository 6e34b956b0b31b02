"""SAC and TD3 on torch networks: how their parts are put together for the CPU and for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from velocirl.networks.torch_checks import check_module
from velocirl.networks.torch_mlp import TorchMLP
from velocirl.networks.torch_modules import build_columns
from velocirl.networks.torch_network import TorchNetwork
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.actor_critic_agent import FIRST_GAIN, ActorCriticAgent
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy import TorchOffPolicyMachine
from velocirl.training.torch_off_policy_actor_critic import ActorCriticUpdate
from velocirl.training.torch_off_policy_critic import TorchCritic, build_critics, check_critic
from velocirl.training.torch_off_policy_making import PRODUCTS, assemble, network_on, own_module, single_steps
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing
from velocirl.training.torch_policy import TorchPolicy


def make_torch_policy(agent: ActorCriticAgent, modules: Mapping[str, Any]) -> TorchPolicy:
    """The actor of a description, or a user's own module."""
    config, encoding, head = agent.config, agent.encoding, agent.head
    module: Any = modules.get("network")
    name = "the network"
    if own_module(config.network, module, "network"):
        name = type(module).__qualname__
    else:
        assert config.network is not None  # noqa: S101 - else the network is native
        module = build_columns(
            single_steps(config.network, agent.name),
            encoding,
            [(head.outputs, FIRST_GAIN)],
            activation=config.activation,
            initialiser=config.initialiser,
            generator=np.random.default_rng(agent.seeds.initial),
        )
    network = TorchNetwork(module, encoding, head, "cpu", has_value=False)
    if network.state_size:
        raise ValueError(f"{name} has a state_size, but {agent.name} draws single steps from its memory: use PPO")
    check_module(network, encoding, head, name)
    return TorchPolicy(network)


def critic_size(agent: ActorCriticAgent) -> int:
    """The parameters of critics that are torch modules."""
    return sum(one.numel() for one in _critic_module(agent).parameters() if one.requires_grad)


def make_torch_machine(agent: ActorCriticAgent) -> TorchOffPolicyMachine:
    """Copies of the environment, a memory and what learns; on a GPU, captured as graphs."""
    config = agent.config
    loss, settings = agent.make_loss()

    def make_update(device: Device, clock: TorchClock, ring: TorchRing) -> ActorCriticUpdate:
        return ActorCriticUpdate(
            device,
            network_on(agent, device, has_value=False),
            _make_critic(agent, device),
            loss,
            settings,
            optimiser_from(config.optimiser),
            ring,
            clock,
            temperature=agent.initial_temperature,
            seed=agent.seeds.learner + 1,
            limits_values=config.max_grad_value > 0,
        )

    return assemble(agent, agent.behaviour, make_update)


def _make_critic(agent: ActorCriticAgent, device: Device) -> Any:
    config = agent.config
    dtype = PRODUCTS[config.precision]
    if agent.critic_widths is not None:
        critic: Any = TorchMLP(agent.critic_network, device.torch, None, dtype)
        critic.parameters_from(agent.initial_critic())
        return critic
    module = _critic_module(agent)
    critic = TorchCritic(module, agent.encoding, agent.head, device.torch, dtype, has_value=False)
    critic.outputs = 2
    check_critic(critic, agent.action_size, type(module).__qualname__)
    if config.compile:
        critic.compile()
    return critic


def _critic_module(agent: ActorCriticAgent) -> Any:
    config, module = agent.config, agent.modules.get("critic")
    if own_module(config.critic, module, "critic"):
        return module
    described = config.network if config.critic is None else config.critic
    if config.critic is None and agent.modules.get("network") is not None:
        raise ValueError(
            f"a network of your own needs critics too: give critic, a description such as 'mlp(64, 64)' or a module"
            f" whose forward(observation, action) gives two values, to {agent.name.upper()}"
        )
    return build_critics(
        single_steps(described, agent.name),
        agent.encoding,
        agent.action_size,
        activation=config.activation,
        initialiser=config.initialiser,
        generator=np.random.default_rng([agent.seeds.initial, 1]),
    )
