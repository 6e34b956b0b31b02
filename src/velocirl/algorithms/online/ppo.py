"""Proximal policy optimisation (Schulman et al., 2017), and A2C, which is one configuration of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo_config import OWN_MODULE, A2CConfig, PPOConfig, is_own_module
from velocirl.algorithms.online.ppo_loss import APPROX_KL, CLIP_FRACTION, ENTROPY, LOSS, POLICY_LOSS, VALUE_LOSS
from velocirl.algorithms.online.ppo_making import Making, schedule_of, spread_seed
from velocirl.algorithms.online.ppo_native import make_native_machine, make_network
from velocirl.engine import random
from velocirl.engine.cpu import available_cores
from velocirl.engine.environment import Environment
from velocirl.networks.encoding import Encoding, encoding_for
from velocirl.networks.heads import head_for
from velocirl.networks.specs import Dense, parse_network
from velocirl.optim.schedules import schedule_from
from velocirl.training.agent import Agent, Row
from velocirl.training.device_choice import choose_device
from velocirl.training.machine import Machine, Report
from velocirl.training.native_policy import NativePolicy
from velocirl.training.normalising import RunningMoments


class PPO(Agent):
    """Proximal policy optimisation: collect a rollout, estimate advantages, improve the policy a bounded way.

    `PPO("CartPole-v1").learn(200_000)`; the settings are those of `PPOConfig`. `network` is the description of a torch
    network, or a torch.nn.Module of your own: see `velocirl.networks.torch_network` for what it takes and gives.
    """

    name: ClassVar[str] = "ppo"
    Config: ClassVar[type[Any]] = PPOConfig
    config: PPOConfig

    def __init__(self, env: str | Environment, **config: Any) -> None:
        network = config.get("network")
        module = None if isinstance(network, (str, Mapping)) else network
        if module is not None:
            config["network"] = OWN_MODULE + type(module).__qualname__
        super().__init__(env, **config)
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if self.config.seed is None else self.config.seed
        self.config = dataclasses.replace(self.config, seed=seed)
        self.seeds = spread_seed(seed)
        self.head = head_for(_from_zero(self.source.action_space), self.source.masked)
        self.encoding = encoding_for(self.source.observation_space, self.config.normalise_observations)
        self.policy = self._make_policy(module)
        self.config, self.device_reason = self._resolved()
        self.observation_moments = RunningMoments(self.encoding.inputs)
        self.reward_moments = RunningMoments(1)
        self._acting = random.streams(self.seeds.acting, 1)  # of actions outside of training
        self._actor: Any = None
        self._machine: Machine | None = None
        self._waiting: Mapping[str, NDArray[Any]] | None = None  # a saved state, until training needs it

    @property
    def network(self) -> Any:
        """The network: the plan of a native one, or the torch module."""
        return self.policy.network

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        assert self.config.seed is not None  # noqa: S101 - resolved in the constructor
        return self.config.seed

    @property
    def parameters(self) -> NDArray[np.float32]:
        """All parameters of the network, as one vector."""
        self._settle()
        return self.policy.parameters

    def iterate(self) -> Row | None:
        """Collect, estimate, update."""
        machine, config = self._machine, self.config
        assert machine is not None and self.goal is not None  # noqa: S101, PT018 - prepared
        schedule = schedule_of(config, self.learning_rate_at(self.steps))
        report = machine.iterate(schedule, self.steps + config.batch)
        if self._actor is not None:
            self._actor.stale = True
        self.steps += config.batch
        self.iterations += 1
        return None if report is None else self._row(report)

    def learning_rate_at(self, steps: int) -> float:
        """The learning rate after so many steps of the run."""
        assert self.goal is not None  # noqa: S101 - learning
        return self.config.learning_rate * self._schedule(self.goal.progress(steps))

    def take_report(self, report: Report) -> None:
        """Let an iteration that somebody else ran be this agent's own."""
        self.steps = report.steps
        self.iterations += 1
        if self._actor is not None:
            self._actor.stale = True
        self.metrics = self._row(report)

    def drain(self) -> Row | None:
        """The metrics of the iteration that is under way on a GPU, once it is done."""
        report = None if self._machine is None else self._machine.drain()
        return None if report is None else self._row(report)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation, or the actions for a batch of them; and the state of a recurrent network.

        Give that state with the next observation, and in `episode_start` where a new episode has begun. Other networks
        give `state` back as it was.
        """
        if self._actor is None:
            spaces = self.source.observation_space, self.source.action_space
            self._actor = self.policy.make_actor(self.head, self.encoding, *spaces, self._acting)
        if self._actor.stale:
            self._settle()
            self._actor.look_through(self.observation_moments)
        observations, masks, single = self.batched(observation, action_masks)
        actions, state = self._actor.choose(observations, masks, state, episode_start, deterministic)
        return (actions[0] if single else actions), state

    def prepare(self) -> None:
        """Make the copies of the environment and compile everything, once."""
        if self._machine is not None:
            return
        making = self.making()
        if self._is_native and self.config.device == "cpu":
            self._machine = make_native_machine(making)
        else:
            from velocirl.algorithms.online.ppo_torch import make_torch_machine  # needs torch

            self._machine = make_torch_machine(making)
        if self._waiting is not None:
            self._machine.take()
            self._machine.load_state(self._waiting)
            self._waiting = None

    def making(self) -> Making:
        """All that this agent's machine is made from."""
        return Making(
            self.name, self.config, self.source, self.policy, self.head, self.encoding, self.seeds,
            self.observation_moments, self.reward_moments, self.recent_returns.maxlen or 0, self.phases,
        )  # fmt: skip

    def join(self, machine: Machine) -> None:
        """Let another machine train this agent."""
        self._machine = machine

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters, optimiser, random streams, normalisers and copies of the environment."""
        arrays = {
            **self.policy_arrays(),
            "acting.rng": self._acting.copy(),
            "reward.moments": self.reward_moments.state.copy(),
        }
        if self._waiting is not None:  # loaded and not trained since
            return {**self._waiting, **arrays}
        return arrays if self._machine is None else {**arrays, **self._machine.state()}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from saved arrays; those of training wait until training begins."""
        self.load_policy_arrays(arrays)
        for name, own in (("acting.rng", self._acting), ("reward.moments", self.reward_moments.state)):
            own[:] = _fitting(name, arrays[name], own)
        if "learner.moments" in arrays:
            self._waiting = dict(arrays)

    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters, what else the network keeps, and the normaliser of observations."""
        parameters = self.parameters.copy()
        moments = self.observation_moments.state.copy()
        return {"network.parameters": parameters, "observation.moments": moments, **self.policy.buffers()}

    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Act as these arrays say."""
        self._settle()
        own = {"network.parameters": self.policy.parameters, "observation.moments": self.observation_moments.state}
        fitting = {name: _fitting(name, arrays[name], array) for name, array in own.items()}
        self.policy.load_buffers(arrays)
        for name, array in own.items():
            array[:] = fitting[name]
        self.policy.refresh()
        if self._actor is not None:
            self._actor.stale = True
        if self._machine is not None:
            self._machine.take()

    @property
    def _is_native(self) -> bool:
        """Whether the native learner can train this agent on the CPU."""
        return self.config.network is None

    def _make_policy(self, module: Any) -> Any:
        """A policy; that of layers alone needs no torch to act, whichever trains it."""
        config, generator = self.config, np.random.default_rng(self.seeds.initial)
        layers = config if config.network is None else layers_alone(config, self.encoding)
        if layers is not None:
            return NativePolicy(make_network(layers, self.encoding.inputs, self.head), generator)
        from velocirl.algorithms.online.ppo_torch import make_torch_policy  # needs torch

        return make_torch_policy(config, self.encoding, self.head, generator, module)

    def _resolved(self) -> tuple[PPOConfig, str]:
        """The configuration with what was left open decided, so that it can be repeated; and why on this device."""
        config = self.config
        if config.workers is not None and config.workers > config.num_envs:
            raise ValueError(f"workers must be at most num_envs={config.num_envs}, got {config.workers}")
        threads = min(config.threads or available_cores(), config.num_envs)
        threads = -(-config.num_envs // -(-config.num_envs // threads))  # as many as get a share
        device, reason = choose_device(
            config.device, self.source, self.policy.parameters.size, config.batch, native=self._is_native
        )
        if config.overlap and device == "cpu" and self.source.native is not None:
            raise ValueError(
                f"overlap is for gym: environments and for GPUs; {self.source.id} is compiled, and on the CPU both"
                " collecting and learning already use every core"
            )
        precision = {"cpu": "float32", "cuda": "tf32"}[device] if config.precision == "auto" else config.precision
        if device == "cpu" and (precision == "tf32" or (self._is_native and precision != "float32")):
            wanted = 'device="cuda"' if precision == "tf32" else 'a torch network, such as network="mlp(64, 64)"'
            raise ValueError(f"precision={precision!r} needs {wanted}")
        if config.compile and isinstance(self.policy, NativePolicy):
            raise ValueError("compile is for modules; the passes of a network of layers alone are written out")
        return dataclasses.replace(config, threads=threads, device=device, precision=precision), reason

    def _settle(self) -> None:
        """Bring what the agent has of its own up to date, where a GPU is ahead of it."""
        if self._machine is not None:
            self._machine.settle()

    @cached_property
    def _schedule(self) -> Any:
        return schedule_from(self.config.learning_rate_schedule)

    def _row(self, report: Report) -> Row:
        """The metrics of an iteration, under the names that Stable-Baselines3 uses."""
        self.recent_returns.extend(report.returns)
        self.recent_lengths.extend(report.lengths)
        means = report.means
        return {
            **self.time_metrics(report.steps),
            # On a GPU the next iteration has been started by now.
            "time/iterations": self.iterations - (self.steps - report.steps) // self.config.batch,
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


def layers_alone(config: PPOConfig, encoding: Encoding) -> PPOConfig | None:
    """The configuration of the native network that a description such as mlp(64, 64) amounts to, or None."""
    if config.network is None or is_own_module(config.network):
        return None
    spec = parse_network(config.network)
    spec.check(encoding.parts)
    layers = [stage for stage in spec.stages if isinstance(stage, Dense)]
    if spec.encoders or len(layers) < len(spec.stages):
        return None
    widths = tuple(width for stage in layers for width in stage.widths)
    return dataclasses.replace(config, hidden=widths, shared=True)


def _from_zero(space: Any) -> Any:
    """An action space whose choices count from 0; a policy draws from it, and what it draws is shifted back."""
    if np.any(getattr(space, "start", 0)):
        kind = type(space)
        return kind(space.n) if hasattr(space, "n") else kind(space.nvec)
    return space


def _fitting(name: str, found: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    if found.shape != own.shape or found.dtype != own.dtype:
        raise ValueError(f"{name} is {found.dtype} {found.shape} in the file; this agent has {own.dtype} {own.shape}")
    return found
