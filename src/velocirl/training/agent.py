"""What every algorithm is to its user: learn, predict, save, load."""

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

ENDLESS, ENDLESS_EACH = 10_000, 1000  # steps in all and of each environment without an end, before training warns
Row = dict[str, float | int | None]


class Agent(Saving, Changing, Estimating, metaclass=Documented):
    """An algorithm with its environment, network and everything that decides its future."""

    Config: ClassVar[type[Any]]
    # Generic defaults: the settings in environments without a preset for the algorithm,
    generic_defaults: ClassVar[Mapping[str, Any]] = {}
    python_steps: ClassVar[Mapping[str, Any]] = {}  # on top of them where an environment steps in Python, slowly,
    pictures: ClassVar[Mapping[str, Any]] = {}  # and on top of all where its pictures are preprocessed
    network_reason: str = ""  # why it has its network, where nobody chose one for images
    counted: ClassVar[str] = "steps"  # what `steps` and `total_steps` count, in a word
    seeds: Seeds  # of its parts
    best_is_best: ClassVar[bool] = True  # whether the model with the best returns of training is what a run is after

    def __init_subclass__(cls, *, listed: bool = True, **kwargs: Any) -> None:
        """`listed` algorithms are found by name; others are a part of something else, which trains them."""
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:  # else what several algorithms have in common
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
        self.given = frozenset(config)  # the settings that somebody gave: the others are defaults
        self.source.require_count(self.config.num_envs)
        if self.config.check:
            self.source.watch()
        self.device_reason = ""  # on what it trains and why, in a few words
        self.steps = 0  # environment steps taken in training, or what else is `counted`
        self.iterations = 0
        self.metrics: Row = {}  # of the last iteration
        self.goal: Goal | None = None
        self.evaluated: Evaluation | None = None  # by a callback, last
        self.run_dir: Path | None = None  # the run in which it was trained last, or from which it was loaded
        self.stopping: str | None = None  # why training should end now, where a callback said so
        self.recent = RecentEpisodes(self.report, self.constraints, native=self.source.native is not None)
        # Seconds since `learn` was called by what they were spent on: "update", and "update/forward" as a part of it.
        self.phases: dict[str, float] = {}
        self._started, self._started_at = time.perf_counter(), 0
        self._endless_told = False
        self._late: Row | None = None  # what a callback found under way, and waited for
        self._learner: Any = None
        self._waiting: Mapping[str, NDArray[Any]] | None = None  # a saved state, until training needs it
        self.saved_ranks = 1  # the processes that trained it until then
        if self.config.num_envs is not None:
            check_copies(self.source.native, self.source.params, self.config.num_envs)

    def __repr__(self) -> str:
        return as_line(self)

    def __str__(self) -> str:
        return as_lines(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    if not TYPE_CHECKING:  # names that are declared nowhere would be of any type

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
        """The environment, as the settings ask for it."""
        frames = {name: config.get(name) for name in FRAMES}
        return Source(env, config.get("params"), frames, config.get("preprocess"), config.get("scenario"))

    def _settings_of_source(self) -> dict[str, Any]:
        """Return the settings that the environment brings; a VecNormalize brings some that not all algorithms have."""
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
        """What it learns with, and on what it runs, in words by their names."""

    @property
    def report(self) -> tuple[str, ...]:
        """The fields of its state that the environment reports at the end of an episode."""
        return () if self.source.native is None else self.source.native.report

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraints of which costs are told in training, by name."""
        return ()

    @property
    def limits(self) -> Mapping[str, float]:
        """The mean costs of an episode that it keeps to, by the names of costs: their sum, or one for a constraint."""
        return limits_of(self.config) if isinstance(self.config, LimitedConfig) else {}

    def limited_costs(self) -> tuple[LimitedCost, ...]:
        """Judge the costs that have a limit, by the last episodes of training."""
        return limited_costs(self.limits, self.recent.reported, self.recent.lengths)

    def model_score(self, metric: str) -> ModelScore:
        """Score the model as it is now, by a metric and the costs that have a limit.

        The last episodes of training are of earlier models, which may cost far less: whether a compiled environment's
        limits are kept is judged by episodes of this model, with actions drawn as in training. Training goes on as if
        these had not been played. The costs of an `Evaluate` are those of its own episodes.
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
        """Add the costs of other episodes to the score of a model that was chosen by its costs."""
        if not score.costs or score.metric == EVALUATION or self.source.native is None:
            return score
        return replace(score, fresh=self._limited_costs_of(played_apart(self, fresh=True)))

    def _limited_costs_of(self, result: Evaluation) -> tuple[LimitedCost, ...]:
        named = {} if result.costs is None else result.costs.named()
        return limited_costs(self.limits, named, result.lengths)

    def preset(self) -> Mapping[str, Any]:
        """The environment's preset for this algorithm, or the generic defaults where it has none."""
        preset = self.source.preset(self.name)
        return self.generic_settings() if preset is None else preset

    def generic_settings(self) -> Mapping[str, Any]:
        """Settings that follow from the algorithm, the spaces and how steps are taken, and from nothing else.

        So an environment of one's own, a `gym:` id and a given object get them by the same rules.
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
        """Settings of which some may depend on what was given."""
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
        """Train for `total_steps` more environment steps, or, without them, to the end of an interrupted run.

        Each callback is called after every iteration: a `Callback`, or a function of the agent that may return False
        to stop. Ctrl-C, SIGTERM and SIGHUP end training after the iteration that is under way.

        `progress`: how it goes is shown where somebody looks, in a terminal or a notebook, once it has taken two
        seconds; False never shows it, True elsewhere too, as lines.

        `run_dir`: the directory of a run, in which training leaves what `velocirl train` does (figures, checkpoints
        every `checkpoint_every` steps or ten times, the best model, a curve), so that `velocirl resume`, `evaluate`,
        `monitor` and `plot` know it. An agent that is where the run in that directory is, as the one that was trained
        there or one that was loaded from it with `best=False`, goes on with it. `velocirl resume` knows of `Evaluate`
        and `StopOnReward` among the callbacks, and of no others.

        `exist`: where a run of another agent is there already, "next" takes the next free name (cartpole-2) and prints
        it; `agent.run_dir` has it. "overwrite" replaces the run, "error" refuses, and "resume" continues it as
        `velocirl resume` does, with `total_steps` counted from the beginning of the run: a finished run stays as it is.

        Schedules run over the steps of each call, as in Stable-Baselines3. `words` are its arguments, of which
        `reset_num_timesteps=False` lets schedules run over all steps so far and these; PPO's default rate still falls
        over each call, since a loop of calls would soon have nothing left of it.
        """
        given = {"progress": progress, "run_dir": run_dir, "exist": exist, "checkpoint_every": checkpoint_every}
        own = own_arguments({"total_steps": total_steps, "callbacks": callbacks, **given}, words)
        steps, heard = own.pop("total_steps"), own.pop("callbacks")
        require_exist(exist, run_dir)
        if run_dir is not None and exist == "resume":
            self._go_on(run_dir, steps)
            steps = None  # all ranks take the goal of the first
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
        """Where training takes place; says whether this process tells of it, as one of those that train together."""
        return nullcontext(True)

    def _go_on(self, run_dir: str | Path, total_steps: int | None) -> None:
        """Be where a run is, unless another rank reads it."""
        from velocirl.training.running import go_on  # which most trainings do without

        if not self.follows:
            go_on(self, run_dir, total_steps)

    def _goal_after(self, total_steps: int | None, *, anew: bool) -> Goal:
        """The goal that is so many steps away, counted from here or from the beginning; or the one there is."""
        if total_steps is not None:
            steps = require_count("total_steps", total_steps, "a whole number of at least 1")
            return Goal(self.steps, steps) if anew or self.restarts_schedule else Goal(0, self.steps + steps)
        if self.goal is None:
            raise ValueError("say for how many steps: learn(total_steps)")
        return self.goal

    @property
    def restarts_schedule(self) -> bool:
        """Return whether the learning rate starts again in each call of `learn`; see `schedules.Linear`.

        It does not where other settings have schedules: all of them run over the same steps.
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
        """Whether training ends before its goal: a callback stopped it, or a signal came."""
        return self.stopping is not None or signals.received is not None

    def begin_clock(self) -> None:
        """Count time and speed from now on."""
        self._started, self._started_at = time.perf_counter(), self.steps
        self.phases.clear()

    def _tell(self, listeners: list[Callback], row: Row | None) -> None:
        """Let the callbacks know of an iteration, where there is news of one."""
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
        """The seed, given or drawn."""
        assert self.config.seed is not None  # noqa: S101 - every kind of agent decides it in its constructor
        return self.config.seed

    def reseed(self, seed: int) -> None:
        """Use another seed for what is drawn from here on."""
        self.config = replace(self.config, seed=seed)
        self.seeds = spread_seed(seed)

    @property
    def finished(self) -> bool:
        """Whether the last call of `learn` reached its end."""
        return self.goal is not None and self.steps >= self.goal.stop

    @abstractmethod
    def prepare(self) -> None:
        """Compile and allocate what training needs, unless that was done before."""

    @abstractmethod
    def iterate(self) -> Row | None:
        """One round of collecting and learning; returns its metrics, or where it runs on, those of the one before."""

    def drain(self) -> Row | None:
        """The metrics of a round that runs on when `iterate` returns, once it is done."""
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
        """The action for an observation, or the actions for a batch; and the state after it, where there is one."""

    @abstractmethod
    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of the arrays by which the agent acts: parameters and normalisers."""

    @abstractmethod
    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Act as the agent did when `policy_arrays` gave these; nothing else changes."""

    def time_metrics(self, steps: int) -> Row:
        """The metrics that are the same for all algorithms, of an iteration after which so many steps were taken."""
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
    """An agent of whatever algorithm, from a model's file, or from a run's directory or name: see `Agent.load`."""
    return Agent.load(path, env, **options)
