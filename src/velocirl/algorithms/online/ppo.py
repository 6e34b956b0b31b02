"""Proximal policy optimisation (Schulman et al., 2017), and A2C, which is one configuration of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo_config import A2CConfig, PPOConfig
from velocirl.algorithms.online.ppo_loss import APPROX_KL, CLIP_FRACTION, ENTROPY, LOSS, POLICY_LOSS, VALUE_LOSS
from velocirl.algorithms.online.ppo_making import Making, schedule_of
from velocirl.algorithms.online.ppo_native import make_native_machine, make_network
from velocirl.engine.environment import Environment
from velocirl.networks.heads import Head, head_for
from velocirl.training.agent import Row
from velocirl.training.deep_agent import DeepAgent, layers_alone
from velocirl.training.device_choice import choose_device
from velocirl.learners.learner import Machine, Report
from velocirl.training.native_policy import NativePolicy
from velocirl.learners.normalising import RunningMoments


class PPO(DeepAgent):
    """Proximal policy optimisation: collect a rollout, estimate advantages, improve the policy a bounded way.

    `PPO("CartPole-v1").learn(200_000)`; the settings are those of `PPOConfig`. `network` is the description of a torch
    network, or a torch.nn.Module of your own: see `velocirl.networks.torch_network` for what it takes and gives.
    """

    name: ClassVar[str] = "ppo"
    Config: ClassVar[type[Any]] = PPOConfig
    config: PPOConfig

    def __init__(self, env: str | Environment, **config: Any) -> None:
        super().__init__(env, **config)
        self.reward_moments = RunningMoments(1)

    def make_head(self) -> Head:
        """The distribution over actions that the environment's action space asks for."""
        return head_for(_from_zero(self.source.action_space), self.source.masked)

    def make_policy(self, modules: Mapping[str, Any]) -> Any:
        """A policy; that of layers alone needs no torch to act, whichever trains it."""
        config, generator = self.config, np.random.default_rng(self.seeds.initial)
        widths = layers_alone(config.network, self.encoding)
        if widths is not None:
            config = dataclasses.replace(config, hidden=widths, shared=True)
        if config.network is None or widths is not None:
            return NativePolicy(make_network(config, self.encoding.inputs, self.head), generator)
        from velocirl.algorithms.online.ppo_torch import make_torch_policy  # needs torch

        return make_torch_policy(config, self.encoding, self.head, generator, modules.get("network"))

    def resolve(self) -> tuple[PPOConfig, str]:
        """Threads, device and precision."""
        config = self.config
        self.check_workers()
        threads = self.shared_threads()
        device, reason = choose_device(
            config.device, self.source, self.policy.parameters.size, config.batch, native=self.is_native
        )
        if config.overlap and device == "cpu" and self.source.native is not None:
            raise ValueError(
                f"overlap is for gym: environments and for GPUs; {self.source.id} is compiled, and on the CPU both"
                " collecting and learning already use every core"
            )
        precision = self.resolved_precision(device)
        return dataclasses.replace(config, threads=threads, device=device, precision=precision), reason

    def iterate(self) -> Row | None:
        """Collect, estimate, update."""
        schedule = schedule_of(self.config, self.learning_rate_at(self.steps))
        return self.begin_iteration(schedule, self.steps + self.config.batch)

    def make_machine(self) -> Machine:
        """The native machine, or torch's where the network or the device asks for it."""
        if self.is_native and self.config.device == "cpu":
            return make_native_machine(self.making())
        from velocirl.algorithms.online.ppo_torch import make_torch_machine  # needs torch

        return make_torch_machine(self.making())

    def making(self) -> Making:
        """All that this agent's machine is made from."""
        return Making(
            self.name, self.config, self.source, self.policy, self.head, self.encoding, self.seeds,
            self.observation_moments, self.reward_moments, self.recent_returns.maxlen or 0, self.phases,
        )  # fmt: skip

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """The normaliser of rewards too."""
        return {**super().own_arrays(), "reward.moments": self.reward_moments.state}

    def row(self, report: Report) -> Row:
        """The metrics of an iteration."""
        means = report.means
        return {
            "train/approx_kl": float(means[APPROX_KL]),
            "train/clip_fraction": float(means[CLIP_FRACTION]),
            "train/entropy_loss": -float(means[ENTROPY]),
            "train/explained_variance": report.explained_variance,
            "train/gradient_norm": report.gradient_norm,
            "train/learning_rate": report.learning_rate,
            "train/loss": float(means[LOSS]),
            "train/minibatches": report.minibatches,
            "train/n_updates": report.optimiser_steps,
            "train/policy_gradient_loss": float(means[POLICY_LOSS]),
            "train/value_loss": float(means[VALUE_LOSS]),
        }


class A2C(PPO):
    """Advantage actor-critic (Mnih et al., 2016): the configuration of PPO that it is."""

    name: ClassVar[str] = "a2c"
    Config: ClassVar[type[Any]] = A2CConfig


def _from_zero(space: Any) -> Any:
    """An action space whose choices count from 0; a policy draws from it, and what it draws is shifted back."""
    if np.any(getattr(space, "start", 0)):
        kind = type(space)
        return kind(space.n) if hasattr(space, "n") else kind(space.nvec)
    return space
