"""PPO on a torch network: how its parts are put together for the CPU and for a GPU."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo_config import PPOConfig
from velocirl.algorithms.online.ppo_loss import APPROX_KL, loss_settings, ppo_loss
from velocirl.algorithms.online.ppo_making import Making, schedule_of
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP
from velocirl.networks.specs import parse_network
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.config import OWN_MODULE, is_own_module
from velocirl.training.device_choice import no_cuda
from velocirl.learners.seeding import Seeds
from velocirl.vector.host_interface import HostInterface

try:
    import torch
except ImportError as missing:
    raise ImportError('a network of torch, or device="cuda", needs torch: pip install "velocirl[torch]"') from missing

from velocirl.networks.torch_checks import check_module, nondeterministic_operations
from velocirl.networks.torch_mlp import TorchMLP
from velocirl.networks.torch_modules import build_module
from velocirl.networks.torch_network import TorchNetwork
from velocirl.training.torch_collectors import Records, TorchFleetCollector, TorchHostCollector
from velocirl.training.torch_device import Device, make_device
from velocirl.training.torch_learner import Objective, TorchLearner
from velocirl.training.torch_machine import TorchMachine
from velocirl.training.torch_memory import tells_of_memory
from velocirl.training.torch_policy import TorchPolicy

PRODUCTS = {"float32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_torch_policy(
    config: PPOConfig, encoding: Encoding, head: Head, generator: np.random.Generator, module: Any
) -> TorchPolicy:
    """The policy of a description, or of a user's own module."""
    name = "the network"
    if module is None:
        if is_own_module(config.network):
            kind = str(config.network).removeprefix(OWN_MODULE)
            raise ValueError(
                f"this agent's network is a module of your own, {kind}, which no file holds: give network={kind}(...)"
            )
        assert config.network is not None  # noqa: S101 - else the network is native
        module = build_module(
            parse_network(config.network),
            encoding,
            head,
            activation=config.activation,
            initialiser=config.initialiser,
            log_deviation=config.log_deviation,
            generator=generator,
        )
    else:
        name = type(module).__qualname__
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"network must be a description such as 'mlp(64, 64)' or a torch.nn.Module, not {type(module).__name__}"
            )
    network = TorchNetwork(module, encoding, head, "cpu")
    check_module(network, encoding, head, name)
    return TorchPolicy(network)


def make_torch_machine(
    making: Making,
    agents: Sequence[Seeds] | None = None,
    *,
    parameters: NDArray[np.float32] | None = None,
    reward_moments: NDArray[np.float64] | None = None,
) -> TorchMachine:
    """Copies of the environment, a collector and a learner; on a GPU, captured as graphs.

    With `agents`, as many learn together, each by its own seeds and a row of `parameters` and `reward_moments`.
    """
    config, head, encoding = making.config, making.head, making.encoding
    if config.device == "cuda" and (missing := no_cuda()) is not None:
        raise RuntimeError(f'device="cuda" cannot be used: {missing}; give device="cpu" (velocirl doctor tells more)')
    with tells_of_memory(config.device, config.num_envs, config.horizon, config.minibatch_size):
        assert config.threads is not None  # noqa: S101 - resolved in the constructor
        work = config.batch // config.num_minibatches * making.policy.parameters.shape[-1]
        device = make_device(config.device, config.threads, config.precision, work)
        seeds = [making.seeds] if agents is None else list(agents)
        network = make_torch_network(making, device, None if agents is None else len(seeds))
        config = _with_units(config, network.state_size > 0)
        collector = _make_collector(making, device, network.twin() if config.overlap else network, seeds)
        records = collector.records
        if config.overlap or (isinstance(collector, TorchHostCollector) and device.name != "cpu"):
            sizes = network.state_size, len(seeds), config.num_envs, config.horizon
            records = Records(device, head, encoding, *sizes, cuts=0)
        objective = Objective(
            head=head,
            loss_gradient=ppo_loss(head),
            settings=loss_settings(config),
            divergence=APPROX_KL,
            optimiser=optimiser_from(config.optimiser),
            vtrace_limits=(config.rho_limit, config.c_limit) if config.estimator == "vtrace" else None,
        )
        schedule = schedule_of(config, config.learning_rate)
        units = config.batch // schedule.unit
        schedule = schedule._replace(minibatches=nearest_divisor(units, schedule.minibatches))
        learner = TorchLearner(
            device, network, objective, records, schedule, [one.learner for one in seeds], config.precision == "fp16"
        )
        machine = TorchMachine(
            device,
            collector,
            learner,
            records,
            making.policy.parameters if parameters is None else parameters,
            making.observation_moments,
            making.reward_moments.state.T if reward_moments is None else reward_moments,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            normalises=encoding.normalises,
            normalise_rewards=config.normalise_rewards,
            recent=making.recent,
            phases=making.phases,
            overlap=config.overlap,
        )
        machine.prepare()
        return machine


def make_torch_network(making: Making, device: Device, agents: int | None) -> Any:
    """The network that learns: that of the policy where it can be, or a copy of it on the device."""
    config, policy = making.config, making.policy
    dtype = PRODUCTS[config.precision]
    if isinstance(policy.network, MLP):
        return TorchMLP(policy.network, device.torch, agents, dtype)
    network = TorchNetwork(policy.module_for(device.name), making.encoding, making.head, device.torch, dtype)
    if device.name == "cuda" and is_own_module(config.network):
        _tell_of_chance(network, str(config.network).removeprefix(OWN_MODULE))
    if config.compile:
        network.compile()
    return network


def _tell_of_chance(network: TorchNetwork, name: str) -> None:
    """Say which operations of a module are not the same twice on a GPU; those of our own networks are."""
    chancy = [one for one in nondeterministic_operations(network) if one != "cuBLAS"]  # which is so, on one stream
    if chancy:
        warnings.warn(
            f"{name}: on a GPU {', '.join(chancy)} may round differently each time, so the same seed, or a resumed run,"
            " gives nearly the same parameters and not the very same",
            stacklevel=2,
        )


def nearest_divisor(count: int, wanted: int) -> int:
    """The divisor of a count that comes nearest to what is wanted, the smaller of two."""
    return min((one for one in range(1, count + 1) if count % one == 0), key=lambda one: (abs(one - wanted), one))


def _with_units(config: PPOConfig, recurrent: bool) -> PPOConfig:
    """A recurrent network reads whole rollouts of single copies."""
    return dataclasses.replace(config, minibatches="environments") if recurrent else config


def _make_collector(
    making: Making, device: Device, network: Any, seeds: Sequence[Seeds]
) -> TorchFleetCollector | TorchHostCollector:
    config, source, head, encoding = making.config, making.source, making.head, making.encoding
    assert config.threads is not None  # noqa: S101 - resolved in the constructor
    if source.native is not None:
        source.refuse_workers(config.workers)
        streams = [(one.environment, one.policy) for one in seeds]
        return TorchFleetCollector(
            device, source.native, source.params, config.num_envs, config.horizon, head, encoding, network, streams
        )
    envs = source.make_copies(config.num_envs, seed=seeds[0].environment, threads=1, workers=config.workers)
    if not isinstance(envs, HostInterface):
        raise TypeError(f"{source.id} gives a {type(envs).__name__}, which PPO cannot collect from")
    return TorchHostCollector(device, envs, config.horizon, head, encoding, network, seeds[0].policy, config.threads)
