"""Base class of agents with neural networks: acting, saving, and training by a learner.

An algorithm is a subclass that only declares (see `program.stages`). Its networks and its device determine which
learner runs its stages.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import Frames
from velocirl.engine import random
from velocirl.engine.compiler.caching.fingerprint import names_reached
from velocirl.engine.disk.allowance import is_loading
from velocirl.engine.disk.saved import Specs, check_arrays, streams, within
from velocirl.engine.targets.device_names import kind_of
from velocirl.learners.learner import Learner
from velocirl.learners.reports import Report
from velocirl.monitor.gauges import ROOMS, learner_gauges
from velocirl.monitor.throughput import WAITED, Throughput
from velocirl.networks.declared import Declared, Number
from velocirl.networks.encoding import encoding_for
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP
from velocirl.program.dry_run import rehearse
from velocirl.program.fields import fields_of, reads_costs, reads_next
from velocirl.program.normalizing import RunningMoments
from velocirl.program.saved import TRAINED, as_own, learned_specs, normaliser, training_specs
from velocirl.program.seeding import seed_or_drawn
from velocirl.program.several import Several, flat_names
from velocirl.program.task import Task
from velocirl.program.update import Call, Resolver
from velocirl.runs.callback import Callback
from velocirl.runs.signals import StopSignals
from velocirl.scale.launching import launch_of
from velocirl.training.actors.actor import BUFFERS, NativePolicy
from velocirl.training.actors.batching import batched
from velocirl.training.actors.building import build_networks, generator_of, norms_described
from velocirl.training.actors.estimates import DeepEstimates
from velocirl.training.agent import Agent, Row
from velocirl.training.elsewhere import tell_of_beginning
from velocirl.training.estimates import Estimates
from velocirl.training.ranks import Company, company_of
from velocirl.training.settings.config import MODULES, OWN_MODULE
from velocirl.training.settings.device_choice import require_device
from velocirl.training.settings.images import described, image_network
from velocirl.training.settings.policies import Features, with_features
from velocirl.training.settings.rank_devices import task_of_rank
from velocirl.training.settings.scheduled import APART, schedule_of, scheduled_of, scheduled_value, schedules_of
from velocirl.training.source import Given
from velocirl.vector.host.copies import read_row

NATURE = {"network": "nature", "activation": "relu"}


class DeepAgent(Agent):
    """Agent that acts by a network, native or torch's, and is trained by a learner on one device."""

    # Declarations of an algorithm.
    networks: ClassVar[Mapping[str, Declared]]  # by name; the first is the acting network
    act: ClassVar[Callable[..., Any]]  # acting in training: a scalar function that writes row.action
    update: ClassVar[tuple[Any, ...]]  # the stages of an update
    # Metrics that functions add to, and the names they are shown under, if any.
    reports: ClassVar[Mapping[str, str | Several | None]]
    Scratch: ClassVar[type | None] = None  # fields that the algorithm adds to a row
    # Estimates for users: scalar functions of the outputs of trained networks, named as parameters.
    # Q(s, a), with parameter `action` if no network reads it; V(s), written to a row in on-policy algorithms.
    q_value: ClassVar[Callable[..., Any] | None] = None
    state_value: ClassVar[Callable[..., Any] | None] = None
    values: ClassVar[tuple[str, ...]] = ()  # fields of a row that `state_value` writes
    remembers: ClassVar[bool] = False  # whether the networks may be recurrent
    pictures = NATURE

    def __init__(self, env: Given, **config: Any) -> None:
        config = with_features(config)
        self.modules = {
            name: config[name] for name in MODULES if not isinstance(config.get(name), (str, Mapping, type(None)))
        }
        for name, module in self.modules.items():
            config[name] = OWN_MODULE + (module.label if isinstance(module, Features) else type(module).__qualname__)
        super().__init__(env, **config)
        if reads_costs(self.Scratch) and not self.constraints:
            raise ValueError(
                f"{self.name.upper()} learns to keep constraints, and {self.source.id} has none: declare some, as in"
                " Environment(constraints=[Constraint(...)]), or use another algorithm"
            )
        self.reseed(seed_or_drawn(self.config.seed))
        self.head: Head = self.make_head()
        self.encoding = encoding_for(
            self.source.observation_space,
            getattr(self.config, "normalise_observations", False),
            scale=getattr(self.config, "scale_observations", False),
        )
        self._build()
        if not is_loading() and self._open.device != "auto":  # an agent trained on a GPU can act anywhere
            require_device(self.config.device)
        self.observation_moments = RunningMoments(self.encoding.inputs)
        self._acting = random.streams(self.seeds.acting, 1)  # random stream of actions outside of training
        self._throughput = Throughput()
        self._written: Any = None  # the configuration whose settings functions read
        self._read_by_functions: NDArray[Any] = np.zeros(1)  # settings record of the learner's task, once there is one
        self._learned: dict[str, NDArray[Any]] = {}  # learned in another environment, until there is a learner
        self._in_force: dict[int, Row] = {}  # scheduled settings of unreported iterations, by last step
        task = self.task()
        rehearse(task, type(self))  # raises errors of the algorithm's declarations here
        self._refuse_unread(task.settings.dtype.names or ())

    def _refuse_unread(self, read: Sequence[str]) -> None:
        """Raise for schedules of settings that nothing reads while this agent trains."""
        host = {"gamma", "max_grad_norm", "max_grad_value", getattr(self.config, "explores_by", None)}
        for name in schedules_of(self.config).keys() - {*read, *host}:
            raise ValueError(f"{name}: {self.label} does not read it in training: give a number, or leave it out")

    def _build(self) -> None:
        """Build the networks, and resolve the open settings that depend on their size."""
        self._open = self.config  # configuration before open settings are resolved
        try:
            self.built = build_networks(self)
        except ImportError as error:
            if not self.network_reason:
                raise
            raise ImportError(
                f'{self.network_reason.partition("; ")[0]}, which needs torch: pip install "velocirl[torch]", or give'
                " hidden=(64, 64) for a native network"
            ) from error
        self.policy: Any = self._make_policy()
        self.config, self.device_reason = self.resolve()
        self._actor: Any = None
        self._estimates = DeepEstimates(self)

    def rebuild(self, settings: Mapping[str, Any]) -> None:
        """Rebuild the networks with other settings, before training is prepared."""
        if self._learner is not None:
            raise ValueError(f"{self.label} is prepared for training already: change its networks before prepare()")
        self.config = dataclasses.replace(self._open, **settings)
        vars(self).pop("num_parameters", None)  # computed from the networks
        self._build()

    @abstractmethod
    def make_head(self) -> Head:
        """Return the head that turns the network's outputs into actions."""

    @abstractmethod
    def resolve(self) -> tuple[Any, str]:
        """Return the configuration with open settings resolved, which makes it repeatable, and the device's reason."""

    @abstractmethod
    def make_learner(self, task: Task) -> Learner:
        """Return the learner that trains this agent."""

    @abstractmethod
    def row_names(self) -> list[str]:
        """Return the fields of a row that do not come from the algorithm."""

    def parts(self) -> dict[str, str]:
        """Describe the networks and the device, by name."""
        config, shown = self.config, self.config.network
        if isinstance(shown, Mapping):
            shown = ", ".join(f"{name}: {one}" for name, one in shown.items())
        elif shown is None:
            shown = f"{'x'.join(map(str, config.hidden))} {config.activation}" if config.hidden else "linear"
        if (critic := getattr(config, "critic_hidden", None)) is not None:
            shown += f", critic {'x'.join(map(str, critic)) or 'linear'}"
        shown += norms_described(self)
        threads = f", {config.threads} threads" if config.device == "cpu" and (config.threads or 1) > 1 else ""
        return {
            "network": f"{shown}{' for images' if self.network_reason else ''}, {self.num_parameters:,} parameters",
            "device": f"{config.device}{threads}",
        }

    def fitted(self, settings: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Add settings for images, and drop the defaults that the user's settings replace.

        `hidden` replaces the default network; a network replaces the default norms.
        """
        replaced = {"network"} if "hidden" in given and "network" not in given else set[str]()
        images = self._for_images(settings, given)
        settings = {**settings, **images}
        if given.get("network") is not None or images:
            replaced |= {"layer_norm", "critic_layer_norm"}
        if given.get("critic") is not None:
            replaced.add("critic_layer_norm")
        return {name: value for name, value in settings.items() if name not in replaced}

    def _for_images(self, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for images; empty if the user or a preset chose a network, or the device is "python"."""
        chosen = given.keys() & {"network", "hidden", "critic_hidden"} or settings.get("network") is not None
        if chosen or not self.is_generic or settings.get("device") == "python":
            return {}
        network = image_network(self.source.observation_space)
        if network is None:
            return {}
        self.network_reason = described(network, self.source.observation_space)
        settings = {"network": network, "activation": "relu"}
        if isinstance(network, str) and hasattr(self.Config, "normalise_observations"):
            settings["normalise_observations"] = False  # bytes have a known scale
        return settings

    def numbers(self) -> dict[str, Any]:
        """Return numbers that functions read in addition to the configuration, and initial values of declared numbers.

        Functions read a tuple of numbers as an array.
        """
        return {}

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints whose costs are reported: the environment's, or "cost" for environments in Python.

        Whether infos of the latter contain a cost is only known from the first of them.
        """
        if self.source.native is not None:
            return tuple(one.name for one in self.source.native.constraints)
        return ("cost",)

    @property
    def acting(self) -> str:
        """Name of the network that acts."""
        return next(iter(self.networks))

    @property
    def network(self) -> Any:
        """Acting network: the layout of a native one, or the torch module."""
        self._settle()
        return self.policy.network

    @property
    def parameters(self) -> NDArray[np.float32]:
        """All parameters of the acting network, as one vector."""
        self._settle()
        return self.policy.parameters

    @property
    def learner(self) -> Learner:
        """Learner that trains this agent; exists after `prepare`."""
        assert self._learner is not None  # noqa: S101 - prepared
        return self._learner

    @property
    def is_native(self) -> bool:
        """Return whether the native learner can train this agent on the CPU."""
        return not self.config.compile and all(getattr(self.config, name, None) is None for name in MODULES)

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of all trained networks."""
        return sum(one.num_parameters for one in self.built.values())

    def learning_rate_at(self, steps: int) -> float:
        """Return the learning rate after `steps` steps of the run."""
        assert self.goal is not None  # noqa: S101 - learning
        return scheduled_value(self.config, "learning_rate", self.goal.progress(steps))

    @abstractmethod
    def next_iteration(self) -> tuple[Any, int]:
        """Return the schedule of the next iteration, and the run's step count after it."""

    def iterate(self) -> Row | None:
        """Collect, estimate, update and report."""
        return self.begin_iteration(*self.next_iteration())

    def value_of(self, setting: str) -> float:
        """Return a setting's value in the next iteration, by its schedule if it has one."""
        if setting not in schedules_of(self.config):
            return getattr(self.config, setting)
        assert self.goal is not None  # noqa: S101 - learning
        return scheduled_value(self.config, setting, self.goal.progress(self.steps))

    def begin_iteration(self, schedule: Any, steps: int) -> Row | None:
        """Run an iteration that brings the run to `steps` steps; returns the metrics available by then."""
        self._write_scheduled(steps)
        report = self.learner.iterate(schedule, steps)
        if self._actor is not None:
            self._actor.stale = True
        self.steps = steps
        self.iterations += 1
        return None if report is None else self._told(report)

    def _write_scheduled(self, steps: int) -> None:
        """Write the values of scheduled settings for the iteration that ends after `steps` steps of the run."""
        goal, record = self.goal, self._read_by_functions
        assert goal is not None  # noqa: S101 - learning
        config, scheduled = self.config, schedules_of(self.config)
        self._in_force[steps] = {}
        known, self._written = config is self._written, config  # settings without a schedule change with the object
        if known and not scheduled:
            return
        numbers, progress = {**vars(config), **self.numbers()}, goal.progress(self.steps)
        names = scheduled if known else scheduled_of(type(config))
        changing = [name for name in names if name not in APART and numbers[name] is not None]
        values = {name: schedule_of(config, name).value(numbers[name], progress) for name in changing}
        for name, value in values.items():
            if name in (record.dtype.names or ()):
                record[name] = value
        self._in_force[steps] = {f"train/{name}": values[name] for name in scheduled if name in values}

    def take_report(self, report: Report) -> None:
        """Count an iteration that another loop ran as this agent's own."""
        self.steps = report.steps
        self.iterations += 1
        if self._actor is not None:
            self._actor.stale = True
        self.metrics = self._told(report)

    def drain(self) -> Row | None:
        """Wait for the iteration that is running on a GPU and return its metrics."""
        report = None if self._learner is None else self._learner.drain()
        self._settle()  # the torch module, which users may hold, gets the newest parameters
        return None if report is None else self._told(report)

    def pause(self) -> None:
        """Wait for the iteration that is running on a GPU, so that params can be changed.

        Raises ValueError with several ranks: a change made on this rank now would not reach the others.
        """
        if self._learner is not None and self.company is not None:
            raise ValueError("where several ranks train an agent, params are given before training, on every rank")
        self._late = self.drain() or self._late

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Choose the action for an observation, or the actions for a batch; see `Agent.predict`.

        Pass the returned state with the next observation, and `episode_start` where a new episode has started. Networks
        that are not recurrent return `state` unchanged.
        """
        if self._actor is None:
            spaces = self.source.observation_space, self.source.action_space
            self._actor = self.policy.make_actor(self.config.device, self.head, self.encoding, *spaces, self._acting)
        if self._actor.stale:
            self._settle()
            self._actor.look_through(self.observation_moments)
        observations, masks, single = batched(self.source, observation, action_masks)
        actions, state = self._actor.choose(observations, masks, state, episode_start, deterministic)
        if single:
            actions = actions[0] if isinstance(actions, np.ndarray) else read_row(actions, 0)
        return actions, state

    def make_estimates(self) -> Estimates:
        """Return the estimates, computed with the current parameters."""
        return self._estimates

    def network_arrays(self, name: str) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
        """Return the parameters of a trained network, and the buffers of its module."""
        if name == self.acting:
            return self.parameters, within(BUFFERS, self.policy.buffers())
        if self._learner is not None:
            self._settle()
            return self._learner.networks.to_host(name), self._learner.networks.buffers(name)
        saved = f"{name}.parameters"
        if self._waiting is not None and saved in self._waiting:
            return self._waiting[saved], within(f"{name}.buffer", self._waiting)
        if self.steps:
            raise ValueError(
                f"this {self.label} agent was saved without its {name}: load a model with all that training needs, such"
                " as a run's newest (best=False)"
            )
        return self.built[name].initial_parameters(generator_of(self, name)), {}

    def prepare(self) -> None:
        """Create the environments and compile everything, once."""
        if self._learner is not None:
            return
        task, company = self.task(), self.company
        if company is not None:
            if not company.begun:
                company.begin()
            task = task_of_rank(self.task(), company.ranks, launch_of(self.config.runtime))
        if self._waiting is not None and self.saved_ranks != self.ranks and not self.follows:
            warnings.warn(
                f"this agent was trained by {self.saved_ranks} ranks and goes on with {self.ranks}: from where it was,"
                " with other minibatches",
                stacklevel=2,
            )
        self._read_by_functions, self._written = task.settings, None
        self._learner = self.make_learner(task)
        if self._learned:
            tell_of_beginning(self)
            self._learner.take()
            self._learner.load_state({**self._learner.state(), **self._learned})
            self._learned = {}
        if self._waiting is not None:
            self._learner.take()
            self._learner.load_state(self._waiting if company is None else company.own_part(self._waiting))
            self._waiting, self.saved_ranks = None, self.ranks

    def conducted(self, total_steps: int | None) -> AbstractContextManager[bool]:
        """Return the context in which training runs; rank 0 has the callbacks, the run and the display."""
        return super().conducted(total_steps) if self.company is None else self.company.conducted(total_steps)

    def stops(self, signals: StopSignals) -> bool:
        """Return whether training ends before its goal; all ranks agree on it."""
        return super().stops(signals) if self.company is None else self.company.meet(signals)

    def _tell(self, listeners: list[Callback], row: Row | None) -> None:
        """Call the callbacks, with this rank marked as resting: slow callbacks are no hang."""
        if self.company is not None:
            self.company.ranks.rest()
        super()._tell(listeners, row)

    @cached_property
    def company(self) -> Company | None:
        """Ranks that train this agent together; None with a single process."""
        return company_of(self)

    @property
    def ranks(self) -> int:
        """Number of ranks that train this agent; 1 until training starts."""
        company = self.__dict__.get("company")
        return 1 if company is None else company.ranks.size

    @property
    def follows(self) -> bool:
        """Return whether this process is a rank other than 0."""
        return self.company is not None and self.company.ranks.rank > 0

    def one_rank_only(self) -> str | None:
        """Return why several ranks cannot train this agent, as a clause after "where"; None if they can."""
        held = [getattr(one, "held", None) for one in self.built.values()]
        if not any(one is not None and one.takes_statistics for one in held):
            return None
        return "its network takes statistics of batches, of which each rank has a part only (give LayerNorm instead)"

    @property
    def trains_natively(self) -> bool:
        """Return whether CPU threads train this agent with its native network, block by block."""
        return self.is_native and self.config.device == "cpu"

    def shared_out(self) -> dict[str, int]:
        """Return the settings that are sharded over ranks; each rank needs at least one."""
        return {"num_envs": self.config.num_envs}

    def join(self, learner: Learner) -> None:
        """Let another learner train this agent."""
        self._learner = learner

    def task(self) -> Task:
        """Return the learner's input: the algorithm bound to this environment and configuration."""
        parameters = {
            name: self.policy.parameters if name == self.acting else built.initial_parameters(generator_of(self, name))
            for name, built in self.built.items()
        }
        fields = fields_of(self.Scratch, self.head, self.config, len(self.constraints))
        resolver = self.resolver([one.name for one in fields])
        program = resolver.program(self.update)
        act = resolver.acting(static(type(self), "act"), self.acting)
        given = self.numbers()
        starts = [resolver.starts_of(name, given) for name, one in self.networks.items() if isinstance(one, Number)]
        return Task(
            name=self.name,
            config=self.config,
            source=self.source,
            head=self.head,
            encoding=self.encoding,
            seeds=self.seeds,
            networks=self.networks,
            built=self.built,
            parameters=parameters,
            acting=self.acting,
            act=act,
            program=program,
            fields=fields,
            settings=self.settings([act, *program.functions], program.shares),
            number_starts={name: start for some in starts for name, start in some.items()},
            observation_moments=self.observation_moments,
            recent=self.recent.returns.maxlen or 0,
            phases=self.phases,
            frames=self.frames,
            constraints=self.constraints,
            reads_costs=reads_costs(self.Scratch),
            reads_next=reads_next(self.Scratch),
        )

    @property
    def frames(self) -> Frames | None:
        """Frame storage of uint8 observations; None if the learner stores network inputs, as CPU threads do."""
        return None if self.trains_natively or self.encoding.normalises else self.source.stored

    def resolver(self, fields: Sequence[str]) -> Resolver:
        """Return the resolver of the names in this algorithm's stages."""
        names = [*self.row_names(), *fields]
        return Resolver(type(self), self.networks, names, list(self._shown()), self.config)

    def settings(self, calls: Sequence[Call], others: Sequence[str] = ()) -> NDArray[Any]:
        """Return the numbers that functions read from the configuration, and `others`, as a record (1,)."""
        reached = {*(names_reached(*(call.function for call in calls)) if calls else ()), *others}
        beside = {name: getattr(self.config, name) for name in others}
        numbers = {**beside, **dataclasses.asdict(self.config), **self.numbers()}
        given = {name: value for name, value in numbers.items() if name in reached}
        used = {name: float(value) for name, value in given.items() if isinstance(value, (int, float))}
        several = {name: value for name, value in given.items() if isinstance(value, tuple)}
        fields = [(name, np.float32) for name in used] + [(name, np.float32, (len(several[name]),)) for name in several]
        record = np.zeros(1, fields or [("nothing", np.float32)])
        for name, value in {**used, **several}.items():
            record[name] = value
        return record

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the agent's own arrays in addition to its policy, without copying."""
        return {"acting.rng": self._acting}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return parameters, normalizers, random streams, and the state of the learner."""
        if self._learned:  # only a learner has the other arrays of the training state
            self.prepare()
        policy = self.policy_arrays()  # first: it syncs the agent's own arrays
        arrays = {**policy, **{name: array.copy() for name, array in self.own_arrays().items()}}
        if self._waiting is not None:  # loaded and not trained since
            return {**self._waiting, **arrays}
        if self._learner is None:
            return arrays
        return {**arrays, **(self._learner.state() if self.company is None else self.company.state())}

    def specs(self, arrays: Mapping[str, NDArray[Any]]) -> Specs:
        """Return the specs that arrays of such an agent must have, including the learner's if it was trained."""
        own = {name: normaliser(array) for name, array in self.own_arrays().items() if name.endswith(".moments")}
        training = training_specs(self.task(), arrays) if TRAINED in arrays else {}
        return {**self._policy_specs(), "acting.rng": streams(1), **own, **training}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load saved arrays; training state is kept until training is prepared."""
        policy = self._policy_specs()
        self.load_policy_arrays({name: arrays[name] for name in policy})
        for name, array in self.own_arrays().items():
            array[:] = arrays[name]
        if TRAINED in arrays:
            self._waiting = dict(arrays)
        else:
            others = {*self.specs({}), *self.recent.specs()}
            self._learned = {name: array for name, array in arrays.items() if name not in others}

    def names_of_learned(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
        """Return the names of all learned arrays: networks, optimizers and counts."""
        return super().names_of_learned(arrays) | set(learned_specs(self.specs(arrays)))

    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the acting network's parameters and buffers, and of the observation normalizer."""
        parameters = self.parameters.copy()
        moments = self.observation_moments.state.copy()
        return {"network.parameters": parameters, "observation.moments": moments, **self.policy.buffers()}

    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays returned by `policy_arrays`; the agent acts by them from now on."""
        self._settle()
        check_arrays(arrays, self._policy_specs(), allow_nan=True)
        own = {"network.parameters": self.policy.parameters, "observation.moments": self.observation_moments.state}
        self.policy.load_buffers(arrays)
        for name, array in own.items():
            array[:] = arrays[name]
        if self._actor is not None:
            self._actor.stale = True
        if self._learner is not None:
            self._learner.take()

    def check_workers(self) -> None:
        """Raise if there are more workers than environments, or workers for a compiled environment."""
        config = self.config
        if config.workers is not None and config.workers > config.num_envs:
            raise ValueError(f"workers must be at most num_envs={config.num_envs}, got {config.workers}")
        if self.source.native is not None or self.source.own_threads:
            self.source.refuse_workers(config.workers)

    def resolved_precision(self, device: str) -> str:
        """Return the precision of matrix products on a device."""
        config = self.config
        precision = {"cuda": "tf32"}.get(kind_of(device), "float32") if config.precision == "auto" else config.precision
        if kind_of(device) != "cuda" and (precision == "tf32" or (self.is_native and precision != "float32")):
            wanted = 'device="cuda"' if precision == "tf32" else 'a torch network, such as network="mlp(64, 64)"'
            raise ValueError(f"precision={precision!r} needs {wanted}")
        return precision

    def row(self, report: Report) -> Row:
        """Return the metrics of an iteration, under Stable-Baselines3's names; None if no row had a value."""
        means = {name: None if mean != mean else mean for name, mean in report.means.items()}
        return {f"train/{shown}": means.get(name) for name, shown in self._shown().items() if shown is not None}

    def _shown(self) -> dict[str, str | None]:
        """Return the display names of metrics, by name; metrics with several entries are listed one by one."""
        found: dict[str, str | None] = {}
        for name, shown in self.reports.items():
            if isinstance(shown, Several):
                names = flat_names(name, shown.each, self.config)
                called = flat_names(shown.shown, shown.each, self.config) if shown.shown else [None] * len(names)
                found |= zip(names, called, strict=True)
            else:
                found[name] = shown
        return found

    def width_of(self, field: str) -> int:
        """Return how many numbers a network reads of a field."""
        if field in ("observation", "next_observation"):
            return self.encoding.inputs
        if field == "action":
            return self.head.action_size
        found = {one.name: one for one in fields_of(self.Scratch, self.head, self.config, len(self.constraints))}
        return int(np.prod(found[field].shape[-1:])) if field in found else 1

    def _policy_specs(self) -> Specs:
        """Return the specs of the arrays that `policy_arrays` returns."""
        parameters = {"network.parameters": self.policy.parameters, **self.policy.buffers()}
        moments = {"observation.moments": normaliser(self.observation_moments.state)}
        return {**{name: as_own(array) for name, array in parameters.items()}, **moments}

    def _make_policy(self) -> Any:
        built = self.built[self.acting]
        if isinstance(built, MLP):
            return NativePolicy(built, generator_of(self, self.acting))
        from velocirl.training.actors.torch_actor import TorchPolicy  # needs torch

        return TorchPolicy(built)

    def _told(self, report: Report) -> Row:
        self.recent.take(report.returns, report.lengths, report.reported, report.violations)
        row = {**self.time_metrics(report.steps), **self.row(report), **self._in_force.pop(report.steps, {})}
        gauges = learner_gauges(self)
        row |= self._throughput.figures(row["time/time_elapsed"] or 0.0, report.optimiser_steps, gauges)
        row |= {name: one for name, one in gauges.items() if name.startswith(ROOMS) and not name.endswith(WAITED)}
        row["time/iterations"] = self.iterations - (report.steps < self.steps)  # on a GPU the next one has started
        return row

    def _settle(self) -> None:
        """Sync the agent's own arrays from the learner, as a GPU may be ahead of them."""
        if self._learner is not None:
            self._learner.settle()


def static(kind: type, name: str) -> Any:
    """Return a function as declared in a class, without binding it."""
    return inspect.getattr_static(kind, name)
