"""Base class of all algorithms: learn, predict, save, load."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from velocirl.engine.checking.checked import faults_named
from velocirl.engine.counts import require_count
from velocirl.engine.framing import FRAMES
from velocirl.monitor.phases import shares
from velocirl.optim.schedules import schedule_from
from velocirl.program.counting.recent import RecentEpisodes
from velocirl.program.seeding import Seeds, spread_seed
from velocirl.runs.callback import Callback
from velocirl.runs.metrics import EVALUATION
from velocirl.runs.model_score import LimitedCost, ModelScore, limited_costs
from velocirl.runs.placement import NEXT, Exist, require_exist
from velocirl.runs.signals import StopSignals
from velocirl.training.callbacks import Step, as_callbacks
from velocirl.training.describing import as_html, as_line, as_lines
from velocirl.training.estimates import Estimating
from velocirl.training.evaluation import Evaluation, played_apart
from velocirl.training.names import attribute_of, change_setting, is_setting
from velocirl.training.persistence import ALGORITHMS, Goal, Saving
from velocirl.training.pickling import reduced
from velocirl.training.presenting import presented
from velocirl.training.settings.changing import Changing
from velocirl.training.settings.config import build_config
from velocirl.training.settings.documenting import Documented, signature_of
from velocirl.training.settings.limits import LimitedConfig, limits_of
from velocirl.training.settings.params import check_copies
from velocirl.training.settings.scheduled import schedules_of
from velocirl.training.settings.words import own_arguments, own_settings
from velocirl.training.source import Given, Source
from velocirl.vector.preprocessing.switches import text_of

ENDLESS, ENDLESS_EACH = 10_000, 1000  # steps without an episode end before a warning: total, per environment
Row = dict[str, float | int | None]


class Agent(Saving, Changing, Estimating, metaclass=Documented):
    """Base class of algorithms: holds the environment, the networks and all state that determines future training."""

    Config: ClassVar[type[Any]]
    # Generic defaults: settings in environments without a preset for the algorithm.
    generic_defaults: ClassVar[Mapping[str, Any]] = {}
    python_steps: ClassVar[Mapping[str, Any]] = {}  # override them in environments in Python, whose steps are slow
    pictures: ClassVar[Mapping[str, Any]] = {}  # override both if images are preprocessed
    network_reason: str = ""  # reason for an automatically chosen image network
    counted: ClassVar[str] = "steps"  # unit of `steps` and `total_steps`
    seeds: Seeds  # seeds of the agent's parts
    best_is_best: ClassVar[bool] = True  # whether a run's result is the model with the best training returns

    def __init_subclass__(cls, *, listed: bool = True, **kwargs: Any) -> None:
        """Register an algorithm by name if `listed`; others are parts of something else that trains them."""
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:  # else a common base class of several algorithms
            if listed:
                ALGORITHMS[cls.name] = cls
            cls.__signature__ = signature_of(cls.Config)

    def __init__(self, env: Given, **config: Any) -> None:
        self.source = self.make_source(env, config)
        if self.source.asked is not None:
            config = {**config, "preprocess": text_of(self.source.asked)}
        if params := self.source.saved_params():
            config = {**config, "params": params}
        config = {**config, **self.source.frames}
        preset = {name: value for name, value in self.preset().items() if name != "total_steps"}
        preset |= self._settings_of_source()
        spaces = self.source.observation_space, self.source.action_space
        config = own_settings(self.Config, config, preset, *spaces, counted=self.source.num_envs is not None)
        self.config: Any = build_config(self.Config, {**self.fitted({**preset, **config}, config), **config})
        self.given = frozenset(config)  # settings passed by the user; all others are defaults
        self.source.require_count(self.config.num_envs)
        if self.config.check:
            self.source.watch()
        self.device_reason = ""  # reason for the chosen device, in a few words
        self.steps = 0  # training steps so far, in the unit `counted`
        self.iterations = 0
        self.metrics: Row = {}  # metrics of the last iteration
        self.goal: Goal | None = None
        self.evaluated: Evaluation | None = None  # latest evaluation by a callback
        self.run_dir: Path | None = None  # run that last trained the agent, or that it was loaded from
        self.stopping: str | None = None  # reason to stop training now, set by callbacks
        self.recent = RecentEpisodes(self.report, self.constraints, native=self.source.native is not None)
        # Seconds since the start of `learn` by phase: "update", and within it "update/forward".
        self.phases: dict[str, float] = {}
        self._started, self._started_at = time.perf_counter(), 0
        self._endless_told = False
        self._late: Row | None = None  # metrics of an iteration that `pause` waited for
        self._learner: Any = None
        self._waiting: Mapping[str, NDArray[Any]] | None = None  # saved training state, kept until training is prepared
        self.saved_ranks = 1  # ranks that trained the agent when it was saved
        if self.config.num_envs is not None:
            check_copies(self.source.native, self.source.params, self.config.num_envs)

    def __repr__(self) -> str:
        return as_line(self)

    def __str__(self) -> str:
        return as_lines(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            return attribute_of(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            if is_setting(self, name):
                change_setting(self, name, value)
            else:
                super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Callable[..., Agent], tuple[Any, ...]]:
        return reduced(self)

    def make_source(self, env: Any, config: Mapping[str, Any]) -> Source:
        """Create the environment source requested by the settings."""
        frames = {name: config.get(name) for name in FRAMES}
        return Source(env, config.get("params"), frames, config.get("preprocess"), config.get("scenario"))

    def _settings_of_source(self) -> dict[str, Any]:
        """Return the environment's settings; raises if VecNormalize implies one that the algorithm lacks."""
        settings = self.source.settings()
        known = {field.name for field in fields(self.Config)}
        if absent := [name for name, value in settings.items() if name not in known and value]:
            scaled = ", and write scale_observations=True" if "scale_observations" in known else ""
            raise ValueError(
                f"{self.label} has no {absent[0]}, which VecNormalize is for PPO and A2C: give the environment without"
                f" it{scaled}"
            )
        return {name: value for name, value in settings.items() if name in known}

    @abstractmethod
    def parts(self) -> dict[str, str]:
        """Describe the networks and the device, by name."""

    @property
    def report(self) -> tuple[str, ...]:
        """Fields of the state that the environment reports at the end of an episode."""
        return () if self.source.native is None else self.source.native.report

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints whose costs are reported in training."""
        return ()

    @property
    def limits(self) -> Mapping[str, float]:
        """Limits of the mean episode cost, by cost name: the sum of all costs, or one constraint."""
        return limits_of(self.config) if isinstance(self.config, LimitedConfig) else {}

    def limited_costs(self) -> tuple[LimitedCost, ...]:
        """Estimate the costs that have a limit from the latest training episodes."""
        return limited_costs(self.limits, self.recent.reported, self.recent.lengths)

    def model_score(self, metric: str) -> ModelScore:
        """Score the current model by a metric and by the costs that have a limit.

        The latest training episodes come from earlier models, which may cost far less. In compiled environments, costs
        are therefore estimated from new episodes of the current model, with sampled actions as in training. These
        episodes do not affect training. For the metric of `Evaluate`, costs are the costs of its own episodes.
        """
        value = float(self.metrics[metric] or 0.0)
        if not self.limits:
            return ModelScore(metric, value)
        result = self.evaluated if metric == EVALUATION else None
        if metric != EVALUATION and self.source.native is not None:
            result = played_apart(self)
            value = result.mean_return
        if result is None:
            return ModelScore(metric, value, self.limited_costs())
        return ModelScore(metric, value, self._limited_costs_of(result))

    def judged_afresh(self, score: ModelScore) -> ModelScore:
        """Add costs of new episodes to the score of a model that was selected by its costs."""
        if not score.costs or score.metric == EVALUATION or self.source.native is None:
            return score
        return replace(score, fresh=self._limited_costs_of(played_apart(self, fresh=True)))

    def _limited_costs_of(self, result: Evaluation) -> tuple[LimitedCost, ...]:
        named = {} if result.costs is None else result.costs.named()
        return limited_costs(self.limits, named, result.lengths)

    def preset(self) -> Mapping[str, Any]:
        """Return the environment's preset for this algorithm, or the generic defaults if it has none."""
        preset = self.source.preset(self.name)
        return self.generic_settings() if preset is None else preset

    def generic_settings(self) -> Mapping[str, Any]:
        """Return the generic defaults.

        They depend only on the algorithm, the spaces, and on whether the environment is compiled, runs in Python or is
        preprocessed. A user's own environment, a `gym:` id and an environment object get them by the same rules.
        """
        return {
            **self.generic_defaults,
            **(self.python_steps if self.source.native is None else {}),
            **({} if self.source.preprocess is None else self.pictures),
        }

    @property
    def is_generic(self) -> bool:
        """Return whether settings that were not given are generic defaults."""
        return self.source.preset(self.name) is None

    def fitted(self, settings: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the default `settings`, adjusted to the settings that the user gave."""
        return settings

    def learn(
        self,
        total_steps: int | None = None,
        callbacks: Step | Callback | Iterable[Any] | None = (),
        *,
        progress: bool | None = None,
        run_dir: str | Path | None = None,
        exist: Exist = NEXT,
        checkpoint_every: int | None = None,
        **words: Any,
    ) -> Self:
        """Train for `total_steps` more environment steps, or, if it is None, to the end of an interrupted run.

        Ctrl-C, SIGTERM and SIGHUP end training after the current iteration.

        Schedules run over the steps of each call, as in Stable-Baselines3. With `reset_num_timesteps=False` they run
        over all steps so far plus the new ones. PPO's default learning rate still falls over each call: otherwise a
        loop of calls would soon train with a rate near zero.

        Args:
            total_steps: Number of further steps. With `exist="resume"`, it counts from the beginning of the run.
            callbacks: Called after each iteration: a `Callback`, a function of the agent that may return False to stop
                training, or several of them.
            progress: Whether to display progress. By default it is shown in terminals and notebooks, after two seconds
                of training. True shows it elsewhere too, line by line.
            run_dir: Directory of a run. Training writes the same files as `velocirl train`: metrics, checkpoints, the
                best model and a plot. `velocirl resume`, `evaluate`, `monitor` and `plot` can read them. An agent
                continues the run of that directory if it was trained there, or was loaded from it with `best=False`,
                and is at the same step. Of the callbacks, `velocirl resume` restores only `Evaluate` and
                `StopOnReward`.
            exist: What to do if `run_dir` has another agent's run. "next" uses the next free name (cartpole-2), prints
                it and stores it in `agent.run_dir`. "overwrite" replaces the run, and "error" raises. "resume"
                continues it as `velocirl resume` does; a finished run stays as it is.
            checkpoint_every: Steps between checkpoints of the run; by default a tenth of the training.
            **words: Arguments of Stable-Baselines3's `learn`, such as `total_timesteps` or `reset_num_timesteps`.

        Returns:
            The agent itself.

        Raises:
            ValueError: If neither `total_steps` nor an interrupted run defines the number of steps.
            RunExistsError: If `run_dir` has another run and `exist` does not allow to use it.
        """
        given = {"progress": progress, "run_dir": run_dir, "exist": exist, "checkpoint_every": checkpoint_every}
        own = own_arguments({"total_steps": total_steps, "callbacks": callbacks, **given}, words)
        steps, heard = own.pop("total_steps"), own.pop("callbacks")
        require_exist(exist, run_dir)
        if run_dir is not None and exist == "resume":
            self._go_on(run_dir, steps)
            steps = None  # all ranks use rank 0's goal
        with self.conducted(steps) as leads:
            goal = self._goal_after(steps, anew=words.get("reset_num_timesteps", True))
            if exist == "resume" and self.finished:
                return self
            told = presented(self, goal, as_callbacks(heard), **own) if leads else nullcontext([])
            with told as listeners:
                self.goal = goal
                self._train(goal, listeners)
        return self

    def conducted(self, total_steps: int | None) -> AbstractContextManager[bool]:  # noqa: ARG002 - of other ranks
        """Return the context in which training runs; it yields whether this process has callbacks and display."""
        return nullcontext(True)

    def _go_on(self, run_dir: str | Path, total_steps: int | None) -> None:
        """Continue the run in a directory, unless rank 0 does that for this rank."""
        from velocirl.training.running import go_on  # imported here: most trainings do not need it

        if not self.follows:
            go_on(self, run_dir, total_steps)

    def _goal_after(self, total_steps: int | None, *, anew: bool) -> Goal:
        """Return the step budget of `total_steps` more steps, or the existing one if `total_steps` is None.

        Unless `anew` or the learning rate restarts in each call, it includes all steps so far: schedules continue.
        """
        if total_steps is not None:
            steps = require_count("total_steps", total_steps, "a whole number of at least 1")
            return Goal(self.steps, steps) if anew or self.restarts_schedule else Goal(0, self.steps + steps)
        if self.goal is None:
            raise ValueError("say for how many steps: learn(total_steps)")
        return self.goal

    @property
    def restarts_schedule(self) -> bool:
        """Return whether the learning rate starts again in each call of `learn`; see `schedules.Linear`.

        It does not if other settings have schedules: all schedules run over the same steps.
        """
        return schedule_from(self.config.learning_rate_schedule).restarts and not schedules_of(self.config)

    def _train(self, goal: Goal, listeners: list[Callback]) -> None:
        started: list[Callback] = []
        self.stopping = None
        with StopSignals() as signals:
            with signals.at_once():
                for listener in listeners:
                    listener.prepare(self)
                self.prepare()
            self.begin_clock()
            try:
                for listener in listeners:
                    started.append(listener)
                    listener.start(self)
                while self.steps < goal.stop and not self.stops(signals):
                    with faults_named():
                        row = self.iterate()
                    self._tell(listeners, row)
                self._tell(listeners, self.drain())
            except BaseException as error:
                for listener in started:
                    listener.fail(self, error)
                raise
            if signals.received is not None:
                self.stopping = signals.received.name
            for listener in listeners:
                listener.finish(self)
        signals.raise_received()

    def stops(self, signals: StopSignals) -> bool:
        """Return whether training ends before its goal: a callback stopped it, or a signal arrived."""
        return self.stopping is not None or signals.received is not None

    def begin_clock(self) -> None:
        """Restart the measurement of time and speed."""
        self._started, self._started_at = time.perf_counter(), self.steps
        self.phases.clear()

    def _tell(self, listeners: list[Callback], row: Row | None) -> None:
        """Store the metrics of an iteration, if there are any, and call the callbacks."""
        if row is None:
            return
        self.metrics = row
        self._look_for_ends()
        for listener in listeners:
            if listener.step(self) is False and self.stopping is None:
                self.stopping = "a callback stopped it"
        late, self._late = self._late, None
        self._tell(listeners, late)

    def _look_for_ends(self) -> None:
        """Warn once if no episode has ended in `ENDLESS` steps, with `ENDLESS_EACH` steps in each environment."""
        if self._endless_told or self.recent.returns or self.steps < ENDLESS or self.counted != "steps" or self.follows:
            return
        each = self.steps // (self.config.num_envs or 1)
        if each >= ENDLESS_EACH:
            self._endless_told = self.source.warn_of_endless(each)

    @property
    def seed(self) -> int:
        """Seed, given or drawn."""
        assert self.config.seed is not None  # noqa: S101 - every kind of agent decides it in its constructor
        return self.config.seed

    def reseed(self, seed: int) -> None:
        """Use another seed for all further random draws."""
        self.config = replace(self.config, seed=seed)
        self.seeds = spread_seed(seed)

    @property
    def finished(self) -> bool:
        """Return whether the last call of `learn` reached its goal."""
        return self.goal is not None and self.steps >= self.goal.stop

    @abstractmethod
    def prepare(self) -> None:
        """Compile and allocate what training needs, unless that was done before."""

    @abstractmethod
    def iterate(self) -> Row | None:
        """Run one iteration: collect and learn.

        Returns its metrics. If it is still running when this returns, the previous iteration's metrics, or None.
        """

    def drain(self) -> Row | None:
        """Wait for an iteration that is still running after `iterate`, and return its metrics; None without one."""
        return None

    @abstractmethod
    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Choose the action for an observation, or the actions for a batch.

        Args:
            observation: One observation, or a batch with a leading dimension.
            state: State of a recurrent network: the one that the last call returned, or None to start.
            episode_start: Where a new episode has started; the state is reset there.
            deterministic: Whether to return the deterministic action instead of sampling one.
            action_masks: Allowed actions, (actions,) or (batch, actions), if the environment has masks.

        Returns:
            The action or actions, and the next state (the given `state` if the network is not recurrent).

        Raises:
            ValueError: If observations have another shape or type than the environment's, are not finite, or if masks
                have a wrong shape.
        """

    @abstractmethod
    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that determine how the agent acts: parameters and normalizers."""

    @abstractmethod
    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays returned by `policy_arrays`; nothing but acting changes."""

    def time_metrics(self, steps: int) -> Row:
        """Return the metrics common to all algorithms, for an iteration that ended after `steps` steps."""
        elapsed = max(time.perf_counter() - self._started, 1e-9)
        row: Row = {
            "time/total_timesteps": steps,
            "time/iterations": self.iterations,
            "time/time_elapsed": round(elapsed, 4),
            "time/fps": round((steps - self._started_at) / elapsed, 1),
            **self.recent.metrics(),
        }
        for phase, share in shares(self.phases).items():
            row[f"time/{phase}_share"] = round(share, 4)
        return row


def load(path: str | Path, env: Given | None = None, **options: Any) -> Agent:
    """Load an agent of any algorithm from a model file, a run's directory or a run's name.

    Args:
        path: File that `save` or a checkpoint wrote, or a run: its directory or its name.
        env: Environment, if it is your own or differs from the saved one.
        **options: Other arguments of `Agent.load`.

    Returns:
        The agent, of the algorithm that the file names.
    """
    return Agent.load(path, env, **options)
