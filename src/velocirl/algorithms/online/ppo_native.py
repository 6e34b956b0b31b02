"""PPO on the native network: how its parts are put together for CPU threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms import load_algorithms
from velocirl.algorithms.online.ppo_config import PPOConfig
from velocirl.algorithms.online.ppo_loss import APPROX_KL, loss_settings, ppo_loss
from velocirl.algorithms.online.ppo_making import Making
from velocirl.networks.heads import Head, describe_head, head_from
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.agent import algorithm_from
from velocirl.training.ahead import compiled_ahead
from velocirl.training.collecting import Journal
from velocirl.training.collectors import Collector, FleetCollector, HostCollector, Policy, allocate_journals
from velocirl.training.config import as_plain, build_config
from velocirl.training.native_machine import NativeMachine
from velocirl.training.on_policy import Learner
from velocirl.training.overlapping import OverlappingMachine
from velocirl.vector.host_interface import HostInterface
from velocirl.vector.native import FleetVectorEnv


def make_native_machine(making: Making) -> NativeMachine:
    """Copies of the environment, a collector and a learner, all compiled."""
    config, source, head, encoding, seeds = making.config, making.source, making.head, making.encoding, making.seeds
    network: MLP = making.policy.network
    assert config.threads is not None  # noqa: S101 - resolved in the constructor
    envs = source.make_copies(config.num_envs, seed=seeds.environment, threads=config.threads, workers=config.workers)
    collector: Collector
    if isinstance(envs, FleetVectorEnv):
        collector = FleetCollector(envs, config.horizon, head, encoding, seeds.policy)
    elif isinstance(envs, HostInterface):
        # Python runs the stages one after another, and only a learner that reads these journals needs several.
        shares = 1 if config.overlap else config.threads
        collector = HostCollector(envs, config.horizon, head, encoding, seeds.policy, shares)
    else:
        raise TypeError(f"{source.id} gives a {type(envs).__name__}, which PPO cannot collect from")
    journals = collector.journals
    if config.overlap:
        threads = max(config.threads - 1, 1)  # one core is for Python
        journals = allocate_journals(config.num_envs, config.horizon, threads, head, encoding.inputs)
    learner = make_learner(config, network, head, making.policy.parameters, journals, seeds.learner)
    sizes = {"inputs": encoding.inputs, "head": describe_head(head), "config": as_plain(config)}
    with compiled_ahead(
        f"{__name__}:compile_learner", {"algorithm": making.algorithm, **sizes}, not learner.is_compiled
    ):
        policy = Policy(head, encoding, network.plan, learner.functions, learner.translator)
        collector.connect(policy, [network.workspace()] if config.overlap else learner.works)
    learner.compile()
    if isinstance(envs, FleetVectorEnv):
        envs.reset()
    machine = OverlappingMachine if config.overlap else NativeMachine
    return machine(
        collector,
        learner,
        making.observation_moments,
        making.reward_moments,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        normalises=encoding.normalises,
        normalise_rewards=config.normalise_rewards,
        recent=making.recent,
        phases=making.phases,
    )


def make_network(config: PPOConfig, inputs: int, head: Head) -> MLP:
    """The network of a policy and its value, together or apart."""
    if head.action_dtype == "float32":  # means hang on the network, deviations are free
        size = head.action_size
        policy = (Segment(0, size, 0.01), Segment(size, size, free=config.log_deviation))
    else:
        policy = (Segment(0, head.outputs, 0.01),)
    value = (Segment(head.outputs, 1, 1.0),)
    together = (Chain(config.hidden, policy + value),)
    apart = (Chain(config.hidden, policy), Chain(config.hidden, value))
    return MLP(inputs, together if config.shared else apart, config.activation, config.initialiser)


def make_learner(
    config: PPOConfig,
    network: MLP,
    head: Head,
    parameters: NDArray[np.float32],
    journals: list[Journal],
    seed: int,
) -> Learner:
    """A learner with the loss of PPO, not compiled yet."""
    return Learner(
        network,
        parameters,
        head,
        optimiser_from(config.optimiser),
        ppo_loss(head),
        APPROX_KL,
        loss_settings(config),
        journals,
        unit=config.horizon if config.minibatches == "environments" else 1,
        seed=seed,
        vtrace_limits=(config.rho_limit, config.c_limit) if config.estimator == "vtrace" else None,
    )


def compile_learner(algorithm: str, inputs: int, head: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Compile a learner into the disk cache; sizes that do not matter to the compiler are as small as can be."""
    load_algorithms()  # a child process knows none yet
    settings = build_config(algorithm_from(algorithm).Config, {**config, "num_envs": 1, "horizon": 1, "threads": 1})
    distribution = head_from(head)
    network = make_network(settings, inputs, distribution)
    journals = allocate_journals(1, 1, 1, distribution, inputs)
    parameters = np.zeros(network.num_parameters, np.float32)
    make_learner(settings, network, distribution, parameters, journals, seed=0).compile()
