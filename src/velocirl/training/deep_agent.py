"""What agents with a network have in common: acting, saving, and a machine that trains them."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.cpu import available_cores
from velocirl.engine.environment import Environment
from velocirl.networks.encoding import Encoding, encoding_for
from velocirl.networks.heads import Head
from velocirl.networks.specs import Dense, parse_network
from velocirl.optim.schedules import schedule_from
from velocirl.training.agent import Agent, Row
from velocirl.training.config import OWN_MODULE, is_own_module
from velocirl.learners.learner import Machine, Report
from velocirl.training.native_policy import NativePolicy
from velocirl.learners.normalising import RunningMoments
from velocirl.learners.seeding import seed_or_drawn, spread_seed

MODULES = ("network", "critic")  # settings that may be a module of one's own


class DeepAgent(Agent):
    """An agent that acts by a network, native or torch's, and is trained by a machine on one device."""

    def __init__(self, env: str | Environment, **config: Any) -> None:
        modules = {
            name: config[name] for name in MODULES if not isinstance(config.get(name), (str, Mapping, type(None)))
        }
        for name, module in modules.items():
            config[name] = OWN_MODULE + type(module).__qualname__
        super().__init__(env, **config)
        seed = seed_or_drawn(self.config.seed)
        self.config = dataclasses.replace(self.config, seed=seed)
        self.seeds = spread_seed(seed)
        self.head: Head = self.make_head()
        self.encoding = encoding_for(
            self.source.observation_space, getattr(self.config, "normalise_observations", False)
        )
        self.policy: Any = self.make_policy(modules)
        self.config, self.device_reason = self.resolve()
        self.observation_moments = RunningMoments(self.encoding.inputs)
        self._acting = random.streams(self.seeds.acting, 1)  # of actions outside of training
        self._actor: Any = None
        self._machine: Machine | None = None
        self._waiting: Mapping[str, NDArray[Any]] | None = None  # a saved state, until training needs it

    @abstractmethod
    def make_head(self) -> Head:
        """How the network's output is read as an action."""

    @abstractmethod
    def make_policy(self, modules: Mapping[str, Any]) -> Any:
        """A NativePolicy or a TorchPolicy; `modules` are those of the user's own, by the name of their setting."""

    @abstractmethod
    def resolve(self) -> tuple[Any, str]:
        """The configuration with what was left open decided, so that it can be repeated; and why on this device."""

    @abstractmethod
    def make_machine(self) -> Machine:
        """What trains this agent."""

    @abstractmethod
    def row(self, report: Report) -> Row:
        """The metrics of an iteration, under the names that Stable-Baselines3 uses."""

    @property
    def network(self) -> Any:
        """The network: the plan of a native one, or the torch module."""
        return self.policy.network

    @property
    def parameters(self) -> NDArray[np.float32]:
        """All parameters of the network that acts, as one vector."""
        self._settle()
        return self.policy.parameters

    @property
    def machine(self) -> Machine:
        """What trains this agent, once it was prepared."""
        assert self._machine is not None  # noqa: S101 - prepared
        return self._machine

    def learning_rate_at(self, steps: int) -> float:
        """The learning rate after so many steps of the run."""
        assert self.goal is not None  # noqa: S101 - learning
        return self.config.learning_rate * self._schedule(self.goal.progress(steps))

    def begin_iteration(self, schedule: Any, steps: int) -> Row | None:
        """Let the machine run an iteration after which the run has taken `steps` steps; the news there are by then."""
        report = self.machine.iterate(schedule, steps)
        if self._actor is not None:
            self._actor.stale = True
        self.steps = steps
        self.iterations += 1
        return None if report is None else self._told(report)

    def take_report(self, report: Report) -> None:
        """Let an iteration that somebody else ran be this agent's own."""
        self.steps = report.steps
        self.iterations += 1
        if self._actor is not None:
            self._actor.stale = True
        self.metrics = self._told(report)

    def drain(self) -> Row | None:
        """The metrics of the iteration that is under way on a GPU, once it is done."""
        report = None if self._machine is None else self._machine.drain()
        return None if report is None else self._told(report)

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
        self._machine = self.make_machine()
        if self._waiting is not None:
            self._machine.take()
            self._machine.load_state(self._waiting)
            self._waiting = None

    def join(self, machine: Machine) -> None:
        """Let another machine train this agent."""
        self._machine = machine

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """What the agent has of its own beside its policy, as the arrays themselves."""
        return {"acting.rng": self._acting}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters, normalisers, random streams, and all that the machine has."""
        policy = self.policy_arrays()  # first: it brings the agent's own arrays up to date
        arrays = {**policy, **{name: array.copy() for name, array in self.own_arrays().items()}}
        if self._waiting is not None:  # loaded and not trained since
            return {**self._waiting, **arrays}
        return arrays if self._machine is None else {**arrays, **self._machine.state()}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from saved arrays; those of training wait until training begins."""
        own = self.own_arrays()
        fitting_all(arrays, own)
        self.load_policy_arrays(arrays)
        for name, array in own.items():
            array[:] = arrays[name]
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
        fitting_all(arrays, own)
        self.policy.load_buffers(arrays)
        for name, array in own.items():
            array[:] = arrays[name]
        self.policy.refresh()
        if self._actor is not None:
            self._actor.stale = True
        if self._machine is not None:
            self._machine.take()

    @property
    def is_native(self) -> bool:
        """Whether the native learner can train this agent on the CPU."""
        return self.config.network is None

    def check_workers(self) -> None:
        """Refuse more workers than copies."""
        config = self.config
        if config.workers is not None and config.workers > config.num_envs:
            raise ValueError(f"workers must be at most num_envs={config.num_envs}, got {config.workers}")

    def resolved_precision(self, device: str) -> str:
        """The precision of products on a device."""
        config = self.config
        precision = {"cpu": "float32", "cuda": "tf32"}[device] if config.precision == "auto" else config.precision
        if device == "cpu" and (precision == "tf32" or (self.is_native and precision != "float32")):
            wanted = 'device="cuda"' if precision == "tf32" else 'a torch network, such as network="mlp(64, 64)"'
            raise ValueError(f"precision={precision!r} needs {wanted}")
        if config.compile and isinstance(self.policy, NativePolicy):
            raise ValueError("compile is for modules; the passes of a network of layers alone are written out")
        return precision

    def shared_threads(self) -> int:
        """Threads of which each gets a share of the copies."""
        config = self.config
        threads = min(config.threads or available_cores(), config.num_envs)
        return -(-config.num_envs // -(-config.num_envs // threads))

    def _told(self, report: Report) -> Row:
        self.recent_returns.extend(report.returns)
        self.recent_lengths.extend(report.lengths)
        row = {**self.time_metrics(report.steps), **self.row(report)}
        row["time/iterations"] = self.iterations - (report.steps < self.steps)  # on a GPU the next one has begun by now
        return row

    def _settle(self) -> None:
        """Bring what the agent has of its own up to date, where a GPU is ahead of it."""
        if self._machine is not None:
            self._machine.settle()

    @cached_property
    def _schedule(self) -> Any:
        return schedule_from(self.config.learning_rate_schedule)


def layers_alone(network: str | dict[str, str] | None, encoding: Encoding) -> tuple[int, ...] | None:
    """The widths of the layers that a description such as mlp(64, 64) amounts to; None where there is more to it."""
    if network is None or is_own_module(network):
        return None
    spec = parse_network(network)
    spec.check(encoding.parts)
    layers = [stage for stage in spec.stages if isinstance(stage, Dense)]
    if spec.encoders or len(layers) < len(spec.stages):
        return None
    return tuple(width for stage in layers for width in stage.widths)


def fitting_all(arrays: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of a file that are not as the agent's own."""
    for name, array in own.items():
        found = arrays[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            wanted = f"{array.dtype} {array.shape}"
            raise ValueError(f"{name} is {found.dtype} {found.shape} in the file; this agent has {wanted}")
