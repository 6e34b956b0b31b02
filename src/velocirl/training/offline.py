"""Base classes of algorithms that learn from recorded data: settings, data, pace of iterations.

No environment is stepped: `learn` counts updates, and episode returns are known only from evaluations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from velocirl.buffers.data.dataset import Dataset
from velocirl.engine import registry
from velocirl.engine.targets.device_names import kind_of
from velocirl.learners.learner import Learner
from velocirl.learners.reports import Report
from velocirl.program.fields import reads_costs
from velocirl.program.pace import Pace
from velocirl.program.rows.recorded import Recorded
from velocirl.program.task import Task
from velocirl.runs.callback import Callback
from velocirl.training.agent import Row
from velocirl.training.callbacks import Step
from velocirl.training.data_source import UNNAMED, DataSource, path_of, require_fit
from velocirl.training.saved import named_environment
from velocirl.training.settings.config import DeepConfig, require, require_whole
from velocirl.training.settings.device_choice import choose_device, require_device
from velocirl.training.settings.words import COMMON, Word, normalized
from velocirl.training.source import Given, Source
from velocirl.training.transitions import TransitionAgent
from velocirl.vector.making import GYMNASIUM

# Maximum updates of an iteration: callbacks run often enough, at negligible cost. WORK shortens iterations with large
# updates, which would take seconds: multiplications in all passes of an iteration's updates.
UPDATES = {"cpu": 1024, "cuda": 4096, "python": 8}
WORK = {"cpu": 1.0e10, "cuda": 1.0e12, "python": 1.0e7}
PASSES = 5  # passes over the parameters per update, approximately


@dataclass(frozen=True)
class OfflineConfig(DeepConfig):
    """Settings of offline algorithms. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **{name: word for name, word in COMMON.items() if name != "n_envs"},
        "normalize": normalized("normalise_observations"),
    }
    # No environment is stepped, and recorded data has no replay buffer settings.
    num_envs: ClassVar[int] = 1  # pyright: ignore[reportIncompatibleVariableOverride]
    workers: ClassVar[int | None] = None  # pyright: ignore[reportIncompatibleVariableOverride]
    check: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]
    collectors: ClassVar[int | None] = None
    n_step: ClassVar[int] = 1
    priority: ClassVar[str] = "none"
    priority_alpha: ClassVar[float] = 0.0
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    data: str | None = None
    """File of the data set to learn from."""
    data_sha256: str | None = None
    """SHA-256 of that data, by which a run that goes on knows it again. Found when training begins."""
    normalise_observations: bool = True
    """Normalise observations by the means and deviations of those in the data."""
    batch_size: int = 256
    """Number of transitions in an update."""
    gradient_accumulation: int = 1
    """Number of batches whose gradients are averaged for one update: as one batch of so many times the size, in less
    memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**20, "batch_size", "gradient_accumulation")
        require(self.effective_batch_size <= 2**24, "gradient_accumulation", self.gradient_accumulation, "smaller")

    @property
    def effective_batch_size(self) -> int:
        """Number of transitions in an update."""
        return self.batch_size * self.gradient_accumulation


@dataclass(frozen=True)
class OfflineCriticConfig(OfflineConfig):
    """Settings of offline algorithms with critics and target networks."""

    target_every: int = 1
    """Number of updates between updates of the target networks."""
    tau: float = 0.005
    """Step of the target networks towards their networks; 1 copies them."""
    critic: str | dict[str, str] | None = None
    """Description of a torch network for each critic. Without it, the critics are built like the actor."""
    critic_layer_norm: bool | None = None
    """Normalise each hidden layer of the critics before its activation. As the algorithm has it if not given, or else
    as layer_norm says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "target_every")
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")


def act(head, actor, row, mask, rng):
    """Sample an action from the policy; never called while an agent learns from data alone."""
    head.sample(actor, mask, rng, row.action)


class OfflineAgent(TransitionAgent):
    """Agent that learns from recorded data, for an environment or only for the spaces of the data."""

    config: Any
    counted = "updates"
    act = act
    for_choices = "DiscreteBC, DiscreteIQL or DiscreteCQL"
    for_numbers = "BC, TD3BC, IQL or CQL"

    def __init__(self, env: Given | DataSource | None = None, **config: Any) -> None:
        """Accept as `data` the path of a dataset, or a `Dataset`; `env` defaults to the environment of the data."""
        given = config.get("data")
        if given is None:
            raise ValueError(
                f"{type(self).__name__} learns from recorded data: give data=, the path of a data set or a"
                " velocirl.Dataset"
            )
        self._data: Dataset | None = given if isinstance(given, Dataset) else None
        self._path = config["data"] = path_of(given)
        # A saved agent can act without its data; the data is loaded when training continues.
        loaded = config.get("data_sha256") is not None and env is not None
        if not loaded:
            self._data = self._data or Dataset.load(self._path)
            config["data_sha256"] = config.get("data_sha256") or self._data.checksum
            env = self._given_by(self._data, config) if env is None else env
        super().__init__(env, **config)  # pyright: ignore[reportArgumentType] - it may be a source already
        if not loaded:
            self.data  # noqa: B018 - what does not fit is refused here
            self._measure()

    def prepare(self) -> None:
        """Open the data and compile everything, once."""
        self._measure()
        super().prepare()

    def _measure(self) -> None:
        """Compute the normalization of observations, unless it is known."""
        if self.encoding.normalises and not self.observation_moments.state[0].any():
            self.recorded.measure()

    def make_source(self, env: Any, config: Mapping[str, Any]) -> Source:
        """Create the source: the environment, or without one the spaces of the data."""
        if isinstance(env, DataSource):
            return env
        source = super().make_source(env, config)
        source.num_envs = None  # given environments are never stepped
        return source

    def _given_by(self, data: Dataset, config: dict[str, Any]) -> str | DataSource:
        """Return the environment that the data names, or its spaces if the environment is unknown."""
        info = data.info
        if info.environment is None or not (
            info.environment in registry.list_envs() or info.environment.startswith(GYMNASIUM)
        ):
            return DataSource.of(info)
        if info.params:
            config.setdefault("params", dict(info.params))
        return named_environment(info.environment, str(self._path))

    @property
    def data(self) -> Dataset:
        """Dataset of the training; raises if its content has changed or it belongs to another environment."""
        if self._data is None:
            if self._path == UNNAMED:
                raise ValueError(f"{self.name} learnt from data that was given as an object: give it again as data=")
            if not Path(self._path).exists():
                raise ValueError(f"the data that {self.name} learnt from is not at {self._path}: say where, as data=")
            self._data = Dataset.load(self._path)
        data, wanted = self._data, self.config.data_sha256
        if data.checksum != wanted:
            raise ValueError(
                f"{self._path} is not the data that {self.name} learnt from so far: give that as data=, or begin anew"
            )
        require_fit(data, self._path, self.source)
        return data

    @cached_property
    def recorded(self) -> Recorded:
        """Data as networks read it."""
        spaces = self.source.observation_space, self.source.action_space
        return Recorded(lambda: self.data, *spaces, self.encoding, self.observation_moments, self.constraints)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints whose costs are known: the environment's, or without one the data's."""
        if self.source.native is None:
            return self.data.info.constraints if reads_costs(self.Scratch) else ()
        return super().constraints

    def learn(
        self,
        total_steps: int | None = None,
        callbacks: Step | Callback | Iterable[Any] | None = (),
        **options: Any,
    ) -> Self:
        """Train for `total_steps` more gradient updates, or, if it is None, to the end of an interrupted run.

        No environment is stepped: checkpoints, `Evaluate` and schedules count updates instead of steps.

        Args:
            total_steps: Number of further updates.
            callbacks: Called after each iteration, see `Agent.learn`.
            **options: Other arguments of `Agent.learn`.

        Returns:
            The agent itself.
        """
        return super().learn(total_steps, callbacks, **options)

    def resolve(self) -> tuple[Any, str]:
        """Resolve threads, device and precision."""
        config = self.config
        device, reason = choose_device(
            config.device, self.source, self.num_parameters, config.effective_batch_size, native=self.is_native,
            steps=False,
        )  # fmt: skip
        precision = self.resolved_precision(device)
        return dataclasses.replace(config, **self.parallelism(), device=device, precision=precision), reason

    @property
    def frames(self) -> None:
        """None: datasets store whole observations."""

    def next_iteration(self) -> tuple[Pace, int]:
        """Return the pace of an iteration of updates, about a tenth of a second long."""
        assert self.goal is not None  # noqa: S101 - learning
        config, goal = self.config, self.goal
        work = PASSES * float(self.num_parameters) * config.effective_batch_size
        device = kind_of(config.device)
        updates = max(int(min(UPDATES[device], WORK[device] / work)), 1)
        updates = min(updates, goal.stop - self.steps)
        pace = Pace(
            rounds=updates,
            learning_rate=self.learning_rate_at(self.steps),
            max_grad_norm=self.value_of("max_grad_norm"),
            max_grad_value=self.value_of("max_grad_value"),
            learning_starts=0,
            train_every=1,
            gradient_steps=1,
            start=goal.start,
            total=goal.total,
            initial=0.0,
            final=0.0,
            fraction=1.0,
            last=0.0,
            beta=0.0,
            beta_final=0.0,
            gamma=self.value_of("gamma"),
        )
        return pace, self.steps + updates

    def shared_out(self) -> dict[str, int]:
        """Return the sharded settings: each rank has a part of the data and of each batch."""
        return {"batch_size": self.config.effective_batch_size}

    def task(self) -> Task:
        """Return the learner's input, with the data."""
        return dataclasses.replace(super().task(), recorded=self.recorded)

    def make_learner(self, task: Task) -> Learner:
        """Return the learner from data."""
        if not self.trains_natively:
            require_device(self.config.device)
        from velocirl.learners.making import make_offline

        return make_offline(task, self.num_parameters, native=self.trains_natively)

    def row(self, report: Report) -> Row:
        """Return the metrics of an iteration."""
        return {
            "train/gradient_norm": report.gradient_norm,
            "train/learning_rate": report.learning_rate,
            "train/n_updates": report.optimiser_steps,
            **super().row(report),
        }
