"""What SAC and TD3 have in common: an actor of continuous actions, and two critics that learn beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.actor_critic_config import ActorCriticConfig
from velocirl.training.actor_critic_updater import ActorCriticUpdater
from velocirl.training.commands import writer_for
from velocirl.training.deep_agent import layers_alone
from velocirl.learners.learner import Machine
from velocirl.training.native_policy import NativePolicy
from velocirl.training.off_policy import ActorCriticLoss, Behaviour
from velocirl.training.off_policy_agent import OffPolicyAgent
from velocirl.training.off_policy_machine import OffPolicyMachine

FIRST_GAIN = 0.01  # of the actor's last layer: its first actions are in the middle of their range


class ActorCriticAgent(OffPolicyAgent):
    """Act, remember, and learn from what is remembered what actions are worth and which to take."""

    config: ActorCriticConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    modules: Mapping[str, Any]  # of the user's own, by the name of their setting

    @abstractmethod
    def make_behaviour(self, write: Any) -> Behaviour:
        """How it acts in training."""

    @abstractmethod
    def make_loss(self) -> tuple[ActorCriticLoss, Any]:
        """What actor and critics learn, and the numbers of that."""

    @property
    def initial_temperature(self) -> float:
        """What a unit of entropy is worth at first."""
        return 1.0

    @property
    def behaviour(self) -> Behaviour:
        """How it acts in training, with what the environment gets from that."""
        return self.make_behaviour(writer_for(self.source.action_space))

    @property
    def action_size(self) -> int:
        """The numbers of an action."""
        return self.head.action_size

    def check_actions(self) -> int:
        """The numbers of an action; refuses what is not a flat, bounded box of them."""
        space, name = self.source.action_space, self.name.upper()
        if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype.kind != "f":
            raise ValueError(
                f"{name} needs actions that are a flat Box of floats, and those of {self.source.id} are {space}:"
                " use PPO, or DQN for a single choice"
            )
        if not space.is_bounded():
            raise ValueError(
                f"{name} acts between bounds, and the actions of {self.source.id} are {space}, without one:"
                " give the space bounds, or use PPO"
            )
        return space.shape[0]

    def make_policy(self, modules: Mapping[str, Any]) -> Any:
        """A policy; that of layers alone needs no torch to act, whichever trains it."""
        self.modules = modules
        widths = self.actor_widths
        if widths is not None:
            return NativePolicy(self.make_actor_network(widths), np.random.default_rng(self.seeds.initial))
        from velocirl.training.torch_actor_critic import make_torch_policy  # needs torch

        return make_torch_policy(self, modules)

    def make_actor_network(self, widths: tuple[int, ...]) -> MLP:
        """The actor as a native network."""
        outputs = (Segment(0, self.head.outputs, FIRST_GAIN),)
        return MLP(self.encoding.inputs, (Chain(widths, outputs),), self.config.activation, self.config.initialiser)

    @property
    def actor_widths(self) -> tuple[int, ...] | None:
        """The widths of the actor's layers, where it has nothing else."""
        network = self.config.network
        return self.config.hidden if network is None else layers_alone(network, self.encoding)

    @property
    def critic_widths(self) -> tuple[int, ...] | None:
        """The widths of each critic's layers, where it has nothing else."""
        critic = self.config.critic
        return self.actor_widths if critic is None else layers_alone(critic, self.encoding)

    @property
    def critic_network(self) -> MLP:
        """Both critics as one native network of [observation | action], where they are layers alone."""
        widths, config = self.critic_widths, self.config
        assert widths is not None  # noqa: S101 - asked for by those who know
        chains = tuple(Chain(widths, (Segment(number, 1),)) for number in range(2))
        return MLP(self.encoding.inputs + self.action_size, chains, config.activation, config.initialiser)

    def initial_critic(self) -> Any:
        """The first parameters of the native critics; others than the actor's, from the same seed."""
        return self.critic_network.initial_parameters(np.random.default_rng([self.seeds.initial, 1]))

    @cached_property
    def num_parameters(self) -> int:
        """Of the actor and of both critics."""
        actor = self.policy.parameters.size
        if self.critic_widths is not None:
            return actor + self.critic_network.num_parameters
        from velocirl.training.torch_actor_critic import critic_size  # needs torch

        return actor + critic_size(self)

    @property
    def is_native(self) -> bool:
        """Whether the native learner can train this agent on the CPU."""
        return self.config.network is None and self.config.critic is None

    @property
    def exploration(self) -> tuple[float, float, float, float]:
        """The deviation of the noise on actions, which stays as it is."""
        return self.config.noise, self.config.noise, 1.0, self.config.noise

    @property
    def targets(self) -> tuple[int, int, float]:
        """As the configuration says."""
        return self.config.actor_every, self.config.target_every, self.config.tau

    def make_machine(self) -> Machine:
        """The native machine, or torch's where a network or the device asks for it."""
        if self.is_native and self.config.device == "cpu":
            return self.make_native_machine()
        from velocirl.training.torch_actor_critic import make_torch_machine  # needs torch

        return make_torch_machine(self)

    def make_native_machine(self) -> OffPolicyMachine:
        """Copies of the environment, a memory and what learns from it, all compiled."""
        config, seeds = self.config, self.seeds
        assert config.threads is not None  # noqa: S101 - resolved in the constructor
        envs = self.source.make_copies(config.num_envs, seed=seeds.environment, threads=1, workers=config.workers)
        loss, settings = self.make_loss()
        updater = ActorCriticUpdater(
            self.policy.network,
            self.critic_network,
            self.policy.parameters,
            self.initial_critic(),
            optimiser_from(config.optimiser),
            loss,
            settings,
            temperature=self.initial_temperature,
            batch_size=config.batch_size,
            threads=config.threads,
            seed=seeds.learner + 1,
        )
        return OffPolicyMachine(
            envs,
            config,
            self.head,
            self.encoding,
            self.behaviour,
            updater,
            most_steps=self.steps_of_iteration,
            seeds=(seeds.policy, seeds.learner),
            recent=self.recent_returns.maxlen or 0,
            phases=self.phases,
        )
