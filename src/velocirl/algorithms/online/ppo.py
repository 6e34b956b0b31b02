"""Proximal policy optimisation (Schulman et al., 2017), and A2C, which is one configuration of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo_config import A2CConfig, PPOConfig
from velocirl.algorithms.online.ppo_loss import (
    APPROX_KL,
    CLIP_FRACTION,
    ENTROPY,
    LOSS,
    POLICY_LOSS,
    VALUE_LOSS,
    LossSettings,
    ppo_loss,
)  # fmt: skip
from velocirl.buffers.returns import Discount
from velocirl.engine import random
from velocirl.engine.cpu import available_cores
from velocirl.engine.environment import Environment
from velocirl.engine.registers import as_rows
from velocirl.networks.encoding import encoding_for
from velocirl.networks.heads import Head, describe_head, head_for, head_from
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.optim.optimisers import optimiser_from
from velocirl.optim.schedules import schedule_from
from velocirl.training.actor import Actor
from velocirl.training.agent import Agent, Row, algorithm_from
from velocirl.training.ahead import compiled_ahead
from velocirl.training.collecting import ENDED, Eyes, Journal
from velocirl.training.collectors import Collector, FleetCollector, HostCollector, Policy, allocate_journals
from velocirl.training.config import as_plain, build_config
from velocirl.training.faults import check_journals, check_update
from velocirl.training.normalising import RunningMoments
from velocirl.training.on_policy import Learner
from velocirl.training.updating import FAULT, GRADIENT_NORM, MINIBATCHES, Schedule
from velocirl.vector.host_interface import HostInterface
from velocirl.vector.native import FleetVectorEnv

REWARD_LIMIT = 10.0  # of a normalised reward


class PPO(Agent):
    """Proximal policy optimisation: collect a rollout, estimate advantages, improve the policy a bounded way.

    `PPO("CartPole-v1").learn(200_000)`; the settings are those of `PPOConfig`.
    """

    name: ClassVar[str] = "ppo"
    Config: ClassVar[type[Any]] = PPOConfig
    config: PPOConfig

    def __init__(self, env: str | Environment, **config: Any) -> None:
        super().__init__(env, **config)
        self.config = _resolved(self.config)
        first, policy, shuffling, acting, initial = np.random.SeedSequence(self.seed).generate_state(5, np.uint64)
        self._seeds = {"env": int(first), "policy": int(policy), "learner": int(shuffling)}
        self.head = head_for(_from_zero(self.source.action_space), self.source.masked)
        self.encoding = encoding_for(self.source.observation_space, self.config.normalise_observations)
        self.network = make_network(self.config, self.encoding.inputs, self.head)
        self.parameters = self.network.initial_parameters(np.random.default_rng(int(initial)))
        self._observation_moments = RunningMoments(self.encoding.inputs)
        self._reward_moments = RunningMoments(1)
        self._acting = random.streams(int(acting), 1)  # of actions outside of training
        self._acting_rows = as_rows(self._acting)
        self._schedule = schedule_from(self.config.learning_rate_schedule)
        self._actor: Actor | None = None
        self._actor_is_stale = True
        self._learner: Learner | None = None
        self._collector: Collector | None = None
        self._waiting: Mapping[str, NDArray[Any]] | None = None  # a saved state, until training needs it
        self._update_eyes()

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        assert self.config.seed is not None  # noqa: S101 - resolved in the constructor
        return self.config.seed

    def iterate(self) -> Row:
        """Collect, estimate, update."""
        learner, collector, config = self._learner, self._collector, self.config
        assert learner is not None and collector is not None and self.goal is not None  # noqa: S101, PT018 - prepared
        learning_rate = config.learning_rate * self._schedule(self.goal.progress(self.steps))
        with self._phase("rollout"):
            for journal in collector.journals:
                journal.counts[:], journal.observation_sums[:], journal.discounted_sums[:] = 0, 0.0, 0.0
            collector.collect(self._eyes, config.gamma)
            check_journals(collector.journals, self.steps, config.num_envs)
        with self._phase("estimate"):
            self._count_episodes()
            self._add_moments()
            explained = learner.estimate(self._discount())
        with self._phase("update"):
            outcome, means = learner.update(self._schedule_of_update(learning_rate))
            check_update(bool(outcome[FAULT]), self.parameters, self.steps + config.batch)
        self._update_eyes()
        self._actor_is_stale = True
        self.steps += config.batch
        self.iterations += 1
        return {
            **self.time_metrics(),
            "train/approx_kl": float(means[APPROX_KL]),
            "train/clip_fraction": float(means[CLIP_FRACTION]),
            "train/entropy_loss": -float(means[ENTROPY]),
            "train/explained_variance": explained,
            "train/gradient_norm": float(outcome[GRADIENT_NORM]),
            "train/learning_rate": learning_rate,
            "train/loss": float(means[LOSS]),
            "train/minibatches": int(outcome[MINIBATCHES]),
            "train/n_updates": learner.optimiser_steps,
            "train/policy_gradient_loss": float(means[POLICY_LOSS]),
            "train/value_loss": float(means[VALUE_LOSS]),
        }

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,  # noqa: ARG002 - Stable-Baselines3's signature
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation, or the actions for a batch of them; and `state` as it was given."""
        if self._actor is None:
            spaces = self.source.observation_space, self.source.action_space
            self._actor = Actor(self.network, self.head, self.encoding, *spaces)
        observations, masks, single = self.batched(observation, action_masks)
        actions = self._actor.choose(
            observations, masks, self.parameters, self._actor_is_stale, self._eyes, self._acting_rows, deterministic
        )
        self._actor_is_stale = False
        return (actions[0] if single else actions), state

    def prepare(self) -> None:
        """Make the copies of the environment and compile everything, once."""
        if self._learner is not None:
            return
        config = self.config
        assert config.threads is not None  # noqa: S101 - resolved in the constructor
        envs = self.source.make_copies(
            config.num_envs, seed=self._seeds["env"], threads=config.threads, workers=config.workers
        )
        collector: Collector
        if isinstance(envs, FleetVectorEnv):
            collector = FleetCollector(envs, config.horizon, self.head, self.encoding, self._seeds["policy"])
        elif isinstance(envs, HostInterface):
            collector = HostCollector(
                envs, config.horizon, self.head, self.encoding, self._seeds["policy"], config.threads
            )
        else:
            raise TypeError(f"{self.source.id} gives a {type(envs).__name__}, which PPO cannot collect from")
        learner = make_learner(
            config, self.network, self.head, self.parameters, collector.journals, self._seeds["learner"]
        )
        sizes = {"inputs": self.encoding.inputs, "head": describe_head(self.head), "config": as_plain(config)}
        with compiled_ahead(f"{__name__}:compile_learner", {"algorithm": self.name, **sizes}, not learner.is_compiled):
            policy = Policy(self.head, self.encoding, self.network.plan, learner.functions, learner.translator)
            collector.connect(policy, learner.works)
        learner.compile()
        if isinstance(envs, FleetVectorEnv):
            envs.reset()
        self._learner, self._collector = learner, collector
        if self._waiting is not None:
            self._load_training(self._waiting)
            self._waiting = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters, optimiser, random streams, normalisers and copies of the environment."""
        arrays = {
            **self.policy_arrays(),
            "acting.rng": self._acting.copy(),
            "reward.moments": self._reward_moments.state.copy(),
        }
        if self._waiting is not None:  # loaded and not trained since
            return {**self._waiting, **arrays}
        if self._learner is not None and self._collector is not None:
            arrays |= {**self._learner.state(), **self._collector.state()}
        return arrays

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from saved arrays; those of training wait until training begins."""
        self.load_policy_arrays(arrays)
        for name, own in (("acting.rng", self._acting), ("reward.moments", self._reward_moments.state)):
            own[:] = _fitting(name, arrays[name], own)
        if "learner.moments" in arrays:
            self._waiting = dict(arrays)

    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters and the normaliser of observations."""
        moments = self._observation_moments.state.copy()
        return {"network.parameters": self.parameters.copy(), "observation.moments": moments}

    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Act as these arrays say."""
        own = {"network.parameters": self.parameters, "observation.moments": self._observation_moments.state}
        fitting = {name: _fitting(name, arrays[name], array) for name, array in own.items()}
        for name, array in own.items():
            array[:] = fitting[name]
        self._actor_is_stale = True
        self._update_eyes()
        if self._learner is not None:
            self._learner.repack()

    def _schedule_of_update(self, learning_rate: float) -> Schedule:
        config = self.config
        return Schedule(
            learning_rate=learning_rate,
            epochs=config.epochs,
            minibatches=config.num_minibatches,
            accumulate=config.gradient_accumulation,
            unit=config.horizon if config.minibatches == "environments" else 1,
            max_grad_norm=config.max_grad_norm,
            max_grad_value=config.max_grad_value,
            target_kl=config.target_kl,
            normalise=config.normalise_advantages,
        )

    def _discount(self) -> Discount:
        scale, limit = 1.0, inf
        if self.config.normalise_rewards:
            scale, limit = float(self._reward_moments.inverse_deviation[0]), REWARD_LIMIT
        return Discount(*map(np.float32, (scale, limit, self.config.gamma, self.config.gae_lambda)))

    def _count_episodes(self) -> None:
        """Remember the last episodes that ended, in the order of their ends."""
        assert self._collector is not None  # noqa: S101 - prepared
        journals = self._collector.journals
        episodes = np.concatenate([journal.episodes[: journal.counts[ENDED]] for journal in journals])
        last = episodes[np.argsort(episodes["step"], kind="stable")][-(self.recent_returns.maxlen or 0) :]
        self.recent_returns.extend(last["total"].tolist())
        self.recent_lengths.extend(last["length"].tolist())

    def _add_moments(self) -> None:
        """Let the normalisers take in what the rollout saw."""
        assert self._collector is not None  # noqa: S101 - prepared
        for journal in self._collector.journals:
            count = journal.samples.size
            if self.encoding.normalises:
                self._observation_moments.add(journal.observation_sums[0], journal.observation_sums[1], count)
            self._reward_moments.add(journal.discounted_sums[:1], journal.discounted_sums[1:], count)

    def _update_eyes(self) -> None:
        moments = self._observation_moments
        self._eyes = Eyes(moments.mean.astype(np.float32), moments.inverse_deviation.astype(np.float32))

    def _load_training(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        assert self._learner is not None and self._collector is not None  # noqa: S101, PT018 - just made
        self._learner.load_state(arrays)
        self._collector.load_state(arrays)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


class A2C(PPO):
    """Advantage actor-critic (Mnih et al., 2016): the configuration of PPO that it is."""

    name: ClassVar[str] = "a2c"
    Config: ClassVar[type[Any]] = A2CConfig


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
        LossSettings(*(np.float32(getattr(config, name)) for name in LossSettings._fields)),
        journals,
        unit=config.horizon if config.minibatches == "environments" else 1,
        seed=seed,
        vtrace_limits=(config.rho_limit, config.c_limit) if config.estimator == "vtrace" else None,
    )


def compile_learner(algorithm: str, inputs: int, head: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Compile a learner into the disk cache; sizes that do not matter to the compiler are as small as can be."""
    settings = build_config(algorithm_from(algorithm).Config, {**config, "num_envs": 1, "horizon": 1, "threads": 1})
    distribution = head_from(head)
    network = make_network(settings, inputs, distribution)
    journals = allocate_journals(1, 1, 1, distribution, inputs)
    parameters = np.zeros(network.num_parameters, np.float32)
    make_learner(settings, network, distribution, parameters, journals, seed=0).compile()


def _resolved(config: PPOConfig) -> PPOConfig:
    """The configuration with what was left open decided, so that it can be repeated."""
    if config.workers is not None and config.workers > config.num_envs:
        raise ValueError(f"workers must be at most num_envs={config.num_envs}, got {config.workers}")
    threads = min(config.threads or available_cores(), config.num_envs)
    threads = -(-config.num_envs // -(-config.num_envs // threads))  # as many as get a share
    seed = config.seed if config.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    return dataclasses.replace(config, threads=threads, seed=seed, device="cpu")


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
