"""Base classes of algorithms that learn from a replay buffer: settings, pace of iterations, learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.replay import TOTAL
from velocirl.engine.targets.device_names import kind_of
from velocirl.learners.learner import Learner
from velocirl.learners.reports import Report
from velocirl.networks.encoding import encoding_for
from velocirl.networks.observations import bounded_by_design
from velocirl.program.pace import Pace, check_group, exploration_at, free
from velocirl.program.rows.recorded import Recorded
from velocirl.program.saved import COUNTS, TRAINED
from velocirl.program.task import Task
from velocirl.training.agent import Row
from velocirl.training.continuing import take_over
from velocirl.training.data_source import UNNAMED, path_of, require_fit
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.settings.collecting import CollectingConfig, check_collectors, check_rings
from velocirl.training.settings.config import DeepConfig, require, require_whole
from velocirl.training.settings.device_choice import choose_device, require_device
from velocirl.training.settings.scheduled import is_schedule, scheduled_value, schedules_of
from velocirl.training.settings.words import Known, Word, absent, normalized, renamed
from velocirl.training.source import Given
from velocirl.training.transitions import TransitionAgent
from velocirl.vector.given import GIVEN

# Maximum steps of an iteration: callbacks run often enough, at negligible cost. WORK shortens iterations with large
# updates, which would take seconds: multiplications in all passes of an iteration's updates.
STEPS = {"cpu": 1024, "cuda": 65_536, "python": 64}
WORK = {"cpu": 5.0e9, "cuda": 1.0e12, "python": 1.0e7}
OVERLAPPED_ROUNDS = 32  # minimum per iteration: its first steps and last updates overlap with nothing
PASSES = 5  # passes over the parameters per update, approximately


def _train_freq(value: Any, known: Known) -> dict[str, Any]:
    """Translate SB3's train_freq: it counts a step of all environments once; train_every counts each environment."""
    count, unit = value if isinstance(value, (tuple, list)) else (value, "step")
    if unit != "step":
        raise ValueError("updates follow steps and not episodes: give train_every=, in steps of all copies together")
    return {"train_every": count * known["num_envs"]}


def _gradient_steps(value: Any, known: Known) -> dict[str, Any]:
    """Translate SB3's gradient_steps: -1 means one update per step since the last round."""
    return {"gradient_steps": known["train_every"] if value == -1 else value}


def _target_update_interval(value: int, known: Known) -> dict[str, Any]:
    """Translate SB3's interval, in steps over all environments, into updates between target updates."""
    rounds, rest = divmod(value * known["gradient_steps"], known["train_every"])
    if rest or rounds < 1:
        raise ValueError(
            f"target_every counts updates, {known['gradient_steps']} of which follow {known['train_every']} steps: give"
            f" target_every={max(rounds, 1)}"
        )
    return {"target_every": rounds}


def _exploration_rate(value: Any, _: Known) -> dict[str, Any]:
    """Translate the tabular setting: a schedule spans all of training, a number stays constant."""
    steady = {} if is_schedule(value) else {"exploration_final": value}
    return {"exploration_initial": value, **steady}


@dataclass(frozen=True)
class OffPolicyConfig(CollectingConfig):
    """Settings of off-policy algorithms. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **DeepConfig.words,
        "train_freq": Word(("train_every",), _train_freq, each_copy=True),
        "gradient_steps": Word(("gradient_steps",), _gradient_steps),
        "n_steps": renamed("n_step"),
        "normalize": normalized("scale_observations"),
        "replay_buffer_class": absent(None, instead='give priority="proportional", n_step=3 or buffer_file='),
        "replay_buffer_kwargs": absent(None, {}, instead='give priority="proportional", n_step=3 or buffer_file='),
        "optimize_memory_usage": absent(False, instead="buffer_file= maps a large buffer to a file"),
    }
    fixed: ClassVar[frozenset[str]] = frozenset({"priority_alpha", "priority_beta", "priority_beta_final"})
    scale_observations: bool = False
    """Scale observations by the bounds of their space, so that these are -1 and 1; for those in physical units. Bounds
    that are infinite or huge (3.4e38) are no scale."""
    buffer_size: int = 100_000
    """Number of transitions in the replay buffer."""
    buffer_file: str | None = None
    """File to map the replay buffer to, for one larger than memory. Without it, the buffer is in memory."""
    prefill: str | None = None
    """File of a data set whose transitions are in the replay buffer before the first step. Learning then starts at
    once, unless learning_starts says otherwise."""
    learning_starts: int = 1000
    """Number of steps with random actions before the first update."""
    train_every: int = 4
    """Number of environment steps, over all copies, between rounds of updates."""
    gradient_steps: int = 1
    """Number of updates in a round."""
    batch_size: int = 64
    """Number of transitions in an update."""
    gradient_accumulation: int = 1
    """Number of batches whose gradients are averaged for one update: as one batch of so many times the size, in less
    memory."""
    n_step: int = 1
    """Number of rewards before the target network is asked."""
    priority: Literal["none", "proportional", "rank"] = "none"
    """Prioritised replay: none, proportional to the TD error, or by its rank."""
    priority_alpha: float = 0.6
    """How strongly priorities count; 0 is uniform sampling."""
    priority_beta: float = 0.4
    """Initial importance-sampling exponent of prioritised replay."""
    priority_beta_final: float = 1.0
    """Importance-sampling exponent at the end of training, reached linearly."""
    target_every: int = 1
    """Number of updates between updates of the target networks."""
    tau: float = 0.005
    """Step of the target networks towards their networks; 1 copies them."""
    overlap: bool = False
    """Take the next steps while learning from the last ones, by the parameters from before; for compiled environments
    on a GPU or with a torch network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "buffer_size", "train_every", "target_every")
        require_whole(self, 1, 2**20, "gradient_steps", "batch_size", "gradient_accumulation")
        require(self.effective_batch_size <= 2**24, "gradient_accumulation", self.gradient_accumulation, "smaller")
        require_whole(self, 1, 1000, "n_step")
        require_whole(self, 0, 2**62, "learning_starts")
        require(self.buffer_size >= self.num_envs, "buffer_size", self.buffer_size, "at least num_envs")
        for name in ("priority_alpha", "priority_beta", "priority_beta_final"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "from 0 to 1")
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")
        apart = (self.rounds_of_updates + 1) * self.num_envs if self.overlap else 1
        require(
            self.buffer_size >= apart, "buffer_size", self.buffer_size,
            f"at least {apart} with overlap, since steps under way (train_every) are not learnt from",
        )  # fmt: skip

    @property
    def rounds_of_updates(self) -> int:
        """Steps per environment between rounds of updates."""
        return -(-self.train_every // self.num_envs)

    @property
    def effective_batch_size(self) -> int:
        """Number of transitions in an update."""
        return self.batch_size * self.gradient_accumulation


@dataclass(frozen=True)
class ExploringConfig(OffPolicyConfig):
    """Settings of off-policy algorithms with random actions (epsilon-greedy)."""

    words: ClassVar[Mapping[str, Word]] = {
        **OffPolicyConfig.words,
        "exploration_initial_eps": renamed("exploration_initial"),
        "exploration_final_eps": renamed("exploration_final"),
        "exploration_rate": Word(("exploration_initial", "exploration_final"), _exploration_rate),
        "target_update_interval": Word(("target_every",), _target_update_interval),
    }
    fixed: ClassVar[frozenset[str]] = frozenset({"exploration_final", "exploration_fraction", "exploration_last"})
    explores_by: ClassVar[str] = "exploration_initial"
    target_every: int = 125
    tau: float = 1.0
    exploration_initial: float = 1.0
    """Initial probability of a random action. A schedule of it is the probability over all of training."""
    exploration_final: float = 0.05
    """Probability of a random action after `exploration_fraction` of training, reached linearly."""
    exploration_fraction: float = 0.1
    """Fraction of training after which `exploration_final` is reached."""
    exploration_last: float | None = None
    """Probability of a random action at the end of training, reached linearly from `exploration_final`. Without it,
    that stays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("exploration_initial", "exploration_final", "exploration_fraction", "exploration_last"):
            value = getattr(self, name)
            require(value is None or 0 <= value <= 1, name, value, "from 0 to 1")


@dataclass(frozen=True)
class ActorCriticConfig(OffPolicyConfig):
    """Settings of off-policy actor-critic algorithms."""

    words: ClassVar[Mapping[str, Word]] = {**OffPolicyConfig.words, "target_update_interval": renamed("target_every")}
    num_envs: int = 1
    train_every: int = 1
    batch_size: int = 256
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    critic: str | dict[str, str] | None = None
    """Description of a torch network for each critic. Without it, the critics are built like the actor."""
    critic_layer_norm: bool | None = None
    """Normalise each hidden layer of the critics before its activation. As the algorithm has it if not given, or else
    as layer_norm says."""
    actor_every: int = 1
    """Number of critic updates per actor update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "actor_every")


def _action_noise(value: Any, _: Known) -> dict[str, Any]:
    if value is not None:
        raise ValueError(
            "give noise=0.1, in units of half the range of actions, and for noise that pushes one way"
            " noise_correlation=0.9"
        )
    return {"noise": 0.0}


@dataclass(frozen=True)
class NoisyConfig(ActorCriticConfig):
    """Settings of off-policy actor-critic algorithms with continuous actions and action noise."""

    words: ClassVar[Mapping[str, Word]] = {**ActorCriticConfig.words, "action_noise": Word(("noise",), _action_noise)}
    fixed: ClassVar[frozenset[str]] = frozenset({"noise_correlation"})
    explores_by: ClassVar[str] = "noise"
    noise: float = 0.0
    """Standard deviation of noise added to the actions during training, in units of half their range."""
    noise_correlation: float = 0.0
    """Correlation of that noise between steps: 0 is white noise; near 1 it pushes one way for long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.noise < inf, "noise", self.noise, "at least 0")
        require(0 <= self.noise_correlation < 1, "noise_correlation", self.noise_correlation, "at least 0 and below 1")


def generic_buffer_size(inputs: int) -> int:
    """Return the default size of a replay buffer: a million transitions, as is customary, or fewer within 1 GiB.

    Memory is allocated as the buffer fills, on a GPU at once. Images get the 100,000 transitions of `OffPolicyConfig`.
    """
    transition = 2 * 4 * inputs  # bytes of both observations
    return min(max(2**30 // transition, OffPolicyConfig.buffer_size), 1_000_000)


class OffPolicyAgent(TransitionAgent):
    """Off-policy agent: steps all environments, stores transitions, and learns from the replay buffer."""

    config: Any
    decide: ClassVar[tuple[Any, ...]] = ()  # `once` stages over ended episodes, before updates

    def __init__(self, env: Given, **config: Any) -> None:
        """Accept as `prefill` the path of a dataset, or a `velocirl.Dataset`."""
        given = config.get("prefill")
        self._prefill = given if isinstance(given, Dataset) else None
        self._remembered = 0  # stored transitions that are not from this run's steps
        if given is not None:
            config["prefill"] = path_of(given)
        super().__init__(env, **config)
        if self._prefill is not None:
            self._recorded()  # raises here if the data does not fit

    def generic_settings(self) -> Mapping[str, Any]:
        """Return the generic defaults: a large buffer, and observations scaled by their bounds where needed.

        Observations that are bounded by design are not scaled.
        """
        space = self.source.observation_space
        return {
            "scale_observations": not bounded_by_design(space),
            "buffer_size": generic_buffer_size(encoding_for(space, normalise=False).inputs),
            **super().generic_settings(),
        }

    def fitted(self, settings: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Start learning at once if the replay buffer is prefilled."""
        settings = super().fitted(settings, given)
        early = given.get("prefill") is not None and "learning_starts" not in given
        return {**settings, "learning_starts": 0} if early else settings

    def prepare(self) -> None:
        """Create the environments and compile everything, once; fill the replay buffer from `prefill`."""
        if self._learner is None and self.company is not None and not self.company.begun:
            self.company.begin()  # after this, every rank knows whether there is a saved state
        waiting, made, elsewhere = self._waiting, self._learner is None, bool(self._learned)
        super().prepare()
        if not made:
            return
        if waiting is not None:  # saved replay buffer, or none
            self._remembered = (int(waiting[COUNTS][TOTAL]) if COUNTS in waiting else 0) - self.steps
        elif elsewhere:  # with an empty replay buffer
            self._remembered = -self.steps
        elif self.config.prefill is not None:
            learner: Any = self.learner  # all off-policy learners have `prefill`
            self._remembered = learner.prefill(self._recorded())

    def continue_from(self, other: DeepAgent | str | Path) -> Self:
        """Start with the networks of an agent that has learned from data, or from the file or run of one.

        TD3 continues TD3BC and ReBRAC, OnlineIQL continues IQL, OnlineCQL and SAC continue CQL, DQN continues
        DiscreteCQL, DiscreteSAC continues DiscreteIQL. Settings that decide the shapes of networks (`hidden`,
        `activation`, `initialiser`, `layer_norm`, `critic_layer_norm`) come from `other` unless they were given. Pass
        the data too, as `prefill=`.

        Raises:
            ValueError: A given setting contradicts the setting of `other`, or the networks have different outputs.
        """
        take_over(self, other if isinstance(other, DeepAgent) else DeepAgent.load(other))
        return self

    def _recorded(self) -> Recorded:
        """Return the `prefill` data as networks read it."""
        config, path = self.config, self.config.prefill
        if self._prefill is None:
            if path == UNNAMED:
                raise ValueError("its replay buffer is filled from data that was given as an object: give prefill=")
            self._prefill = Dataset.load(path)
        data = self._prefill
        require_fit(data, path, self.source)
        if self.frames is not None:
            raise ValueError(f"{self.source.id} shows pictures, which are stored frame by frame: leave prefill out")
        if len(data) > config.buffer_size // config.num_envs * config.num_envs:
            raise ValueError(
                f"{path} has {len(data):,} transitions, and buffer_size={config.buffer_size:,} has no room for them:"
                " give a larger buffer_size"
            )
        spaces = self.source.observation_space, self.source.action_space
        return Recorded(lambda: data, *spaces, self.encoding, self.observation_moments, self.constraints)

    @property
    def exploration(self) -> tuple[float, float, float, float]:
        """Exploration at first, after a fraction of training, that fraction, and exploration at the end."""
        config = self.config
        if isinstance(config, ExploringConfig):
            last = config.exploration_final if config.exploration_last is None else config.exploration_last
            return config.exploration_initial, config.exploration_final, config.exploration_fraction, last
        noise = getattr(config, "noise", 0.0)
        return noise, noise, 1.0, noise

    def exploration_over(self, first: int, last: int) -> tuple[float, float, float, float]:
        """Return `exploration` for the steps of one iteration: a schedule becomes the line between its two ends."""
        name = getattr(self.config, "explores_by", "")
        if name not in schedules_of(self.config):
            return self.exploration
        assert self.goal is not None  # noqa: S101 - learning
        begin, end = self.goal.progress(first), self.goal.progress(last)
        low, high = (scheduled_value(self.config, name, progress) for progress in (begin, end))
        slope = (high - low) / max(end - begin, 1e-12)
        start, stop = low - slope * begin, low + slope * (1.0 - begin)  # that line, extended over all of training
        return start, stop, 1.0, stop

    def resolve(self) -> tuple[Any, str]:
        """Resolve threads, device and precision."""
        config = self.config
        self.check_workers()
        check_collectors(config, self.source)
        check_rings(config)
        device, reason = choose_device(
            config.device, self.source, self.num_parameters, config.effective_batch_size, native=self.is_native
        )
        self._refuse_overlap(device)
        precision = self.resolved_precision(device)
        return dataclasses.replace(config, **self.parallelism(), device=device, precision=precision), reason

    def one_rank_only(self) -> str | None:
        """Return why several ranks cannot train this agent: each needs environments and a replay buffer of its own."""
        config = self.config
        if config.overlap or config.collectors is not None:
            return "it collects and learns at the same time (overlap or collectors)"
        if config.buffer_file is not None:
            return "its memory is a file (buffer_file)"
        if config.priority == "rank":
            return 'one order of all errors decides what it draws (priority="rank", unlike "proportional")'
        if self.source.id.startswith(GIVEN):
            return "its environments are objects that were given to it"
        if not self.trains_natively and config.priority != "none":
            return "its memory has priorities, and its network is torch's or its device not the CPU"
        if not self.trains_natively and self.frames is not None:
            return "its memory has pictures frame by frame"
        return super().one_rank_only()

    def _refuse_overlap(self, device: str) -> None:
        """Raise if overlap would gain nothing."""
        if self.config.overlap and self.source.native is None:
            raise ValueError(
                f"overlap is for compiled environments, and {self.source.id} steps in Python: leave it out, or give it"
                " collectors, which take its steps while updates run"
            )
        if self.config.overlap and device == "cpu" and self.is_native:
            raise ValueError(
                "overlap is for GPUs and torch networks: on CPU threads steps take a few percent of the time, and"
                " updates use every core that helps them; leave it out"
            )

    def next_iteration(self) -> tuple[Pace, int]:
        """Return the pace of an iteration of about a tenth of a second: its steps and the updates due."""
        assert self.goal is not None  # noqa: S101 - learning
        copies = self.config.num_envs
        left = -(-(self.goal.stop - self.steps) // copies)
        pace = self.pace(min(self.steps_of_iteration, left))
        return pace, self.steps + pace.rounds * copies

    @property
    def steps_of_iteration(self) -> int:
        """Steps per environment in an iteration."""
        config = self.config
        if free(config):  # then its duration does not depend on updates
            return max(STEPS[kind_of(config.device)] // config.num_envs, 1)
        work = PASSES * float(self.num_parameters) * config.effective_batch_size
        updates = config.gradient_steps / config.train_every
        steps = max(STEPS[kind_of(config.device)], OVERLAPPED_ROUNDS * config.num_envs if config.overlap else 0)
        return max(int(min(steps, WORK[kind_of(config.device)] / (work * updates))) // config.num_envs, 1)

    def pace(self, rounds: int) -> Pace:
        """Return the pace of the next iteration: when it steps, updates and explores."""
        config, goal = self.config, self.goal
        assert goal is not None  # noqa: S101 - learning
        initial, final, fraction, last = self.exploration_over(self.steps, self.steps + rounds * config.num_envs)
        return Pace(
            rounds=rounds,
            learning_rate=self.learning_rate_at(self.steps),
            max_grad_norm=self.value_of("max_grad_norm"),
            max_grad_value=self.value_of("max_grad_value"),
            learning_starts=config.learning_starts,
            train_every=config.train_every,
            gradient_steps=config.gradient_steps,
            start=goal.start,
            total=goal.total,
            initial=initial,
            final=final,
            fraction=fraction,
            last=last,
            beta=config.priority_beta,
            beta_final=config.priority_beta_final,
            gamma=self.value_of("gamma"),
        )

    def task(self) -> Task:
        """Return the learner's input, with the decisions over ended episodes."""
        task = super().task()
        if not self.decide:
            return task
        resolver = self.resolver([one.name for one in task.fields])
        decisions = resolver.once_after(self.decide)
        settings = self.settings([task.act, *task.program.functions, *decisions], task.program.shares)
        decided_by = resolver.episodes_before(self.decide)
        return dataclasses.replace(task, decisions=decisions, decided_by=decided_by, settings=settings)

    def make_learner(self, task: Task) -> Learner:
        """Return the learner from a replay buffer."""
        if not self.trains_natively:
            self._refuse()
        from velocirl.learners.making import make_replay

        return make_replay(task, self.steps_of_iteration, self.num_parameters, native=self.trains_natively)

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load saved arrays; raises if their replay buffer does not fit the settings."""
        if TRAINED in arrays:
            check_group(self.config, arrays, frames=self.frames is not None or "memory.edges" in arrays)
        super().load_arrays(arrays)

    def row(self, report: Report) -> Row:
        """Return the metrics of an iteration; losses are None before learning starts."""
        row: Row = {
            "train/gradient_norm": report.gradient_norm if report.minibatches > 0 else None,
            "train/learning_rate": report.learning_rate,
            "train/n_updates": report.optimiser_steps,
            "buffer/fill_share": round(min((report.steps + self._remembered) / self.config.buffer_size, 1.0), 4),
            **super().row(report),
        }
        if isinstance(self.config, ExploringConfig):
            row["rollout/exploration_rate"] = self._exploration_rate(report.steps)
        return row

    def _exploration_rate(self, steps: int) -> float:
        """Return the probability of a random action after `steps` steps of the run."""
        assert self.goal is not None  # noqa: S101 - learning
        if steps < self.config.learning_starts:
            return 1.0
        if self.config.explores_by in schedules_of(self.config):
            return scheduled_value(self.config, self.config.explores_by, self.goal.progress(steps))
        return float(exploration_at(steps, self.pace(1)))

    def _refuse(self) -> None:
        """Raise for settings that only the learner of CPU threads supports."""
        config, native = self.config, 'leave network out, and give device="cpu"'
        if config.priority == "rank":
            raise ValueError(f'priority="rank" needs the native network: {native}; or give priority="proportional"')
        if config.buffer_file is not None:
            raise ValueError(f"buffer_file needs the native network: {native}; or leave it out, and reduce buffer_size")
        require_device(config.device)
