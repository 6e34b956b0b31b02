"""Callbacks that are called between the iterations of training."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.counts import STEPS, require_count
from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.naming import nearest
from velocirl.runs.callback import Callback
from velocirl.runs.checkpoints import SCORE, Checkpoints
from velocirl.runs.directory import RunExistsError
from velocirl.runs.metrics import EVALUATION
from velocirl.runs.model_score import ModelScore
from velocirl.runs.placement import NEXT, Exist, require_exist, tell
from velocirl.training.evaluation import evaluate
from velocirl.training.names import IN_PACKAGE
from velocirl.training.saved import other_setting
from velocirl.training.settings.config import require
from velocirl.training.source import Given

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

Step = Callable[..., Any]  # a function of the agent; returning False stops training


class Function(Callback):
    """Callback that calls a plain function."""

    def __init__(self, function: Step) -> None:
        try:
            inspect.signature(function).bind(None)
        except TypeError:
            raise TypeError(f"{function!r} is called with the agent alone: let it take one argument") from None
        except ValueError:  # a function in C without a signature
            pass
        self._function = function

    def step(self, agent: Agent) -> bool | None:
        """Call the function."""
        return self._function(agent)


def as_callbacks(given: Step | Callback | Iterable[Any] | None) -> list[Callback]:
    """Return the callbacks that a user passed, one or several, with functions wrapped in `Function`."""
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, Callback) else [given]
    callbacks = []
    for one in several if given is not None else ():
        if isinstance(one, Callback):
            callbacks.append(one)
        elif any(kind.__module__.startswith("stable_baselines3.") for kind in inspect.getmro(type(one))):
            name = type(one).__name__
            instead = IN_PACKAGE.get(name, "a subclass of velocirl.Callback or a function of the agent")
            raise TypeError(
                f"{name} is a callback of Stable-Baselines3, which wants to be called at each step by a model of there:"
                f" use {instead}, which is called after each iteration"
            )
        elif isinstance(one, type) or not callable(one):
            raise TypeError(f"a callback is a velocirl callback or a function of the agent, not {one!r}")
        else:
            callbacks.append(Function(one))
    return callbacks


class Every:
    """Step interval: due once every `steps` steps."""

    def __init__(self, steps: int) -> None:
        self.steps = require_count("every", steps, STEPS)
        self._next = 0

    def start(self, now: int) -> None:
        """Start counting at step `now`."""
        self._next = now - now % self.steps + self.steps

    def due(self, now: int) -> bool:
        """Return whether the interval has passed at step `now`, and start the next one."""
        if now < self._next:
            return False
        self._next = now - now % self.steps + self.steps
        return True


class Evaluate(Callback):
    """Evaluates every `every` steps and at the end; adds eval/mean_reward, eval/std_reward and eval/mean_ep_length.

    If episodes have costs, eval/mean_cost is their mean. For an agent with cost limits, the best model is the one with
    the best return among those within the limits, by the upper ends of the costs' confidence intervals. If no model is
    within the limits, the best is the one nearest to them.

    With `directory`, the best model so far is saved there as best.safetensors. A best model of the same training, with
    whatever seed, is replaced only by a better one. If the directory has a best model of another training, `exist`
    decides. "next" uses the next free name, prints it and stores it in `directory`. "overwrite" replaces the model,
    "resume" and "error" raise RunExistsError.

    Args:
        every: Steps between evaluations, counted over all environments.
        episodes: Episodes per evaluation.
        env: Environment to evaluate in; by default the agent's own.
        seed: Seed of each evaluation.
        deterministic: Whether the agent takes its deterministic action instead of sampling one.
        directory: Directory of the best model; None saves no model.
        exist: What to do if the directory has a model of another training: "next", "overwrite", "resume" or "error".
    """

    def __init__(
        self,
        every: int = 50_000,
        episodes: int = 20,
        *,
        env: Given | None = None,
        seed: int = 0,
        deterministic: bool = True,
        directory: str | Path | None = None,
        exist: Exist = NEXT,
    ) -> None:
        require_exist(exist, directory, "directory")
        self._every = Every(every)
        self.every = self._every.steps
        self._episodes = require_count("episodes", episodes)
        self._env, self._seed, self._deterministic = env, seed, deterministic
        self.directory = None if directory is None else Path(directory)
        self._exist: Exist = exist
        self.results: list[tuple[int, Any]] = []  # (steps, evaluation)
        self.best = -np.inf
        self._score: ModelScore | None = None

    def prepare(self, agent: Agent) -> None:
        """Choose the directory of the best model before the first step."""
        if self.directory is None:
            return

        def against(found: Checkpoints) -> str | None:
            document = found.best_document()
            other = None if document is None else other_setting(document, agent)
            return None if other is None else f"has the best model of another training ({_said(other)})"

        exist, self._exist = self._exist, NEXT  # further calls of `learn` continue there
        self.directory = _place(self.directory, exist, Checkpoints.best_document, against, Checkpoints.clear_best)

    def start(self, agent: Agent) -> None:
        """Start counting at the agent's step; load the score of an existing best model."""
        self._every.start(agent.steps)
        if self.directory is not None:
            self._score = Checkpoints(self.directory).best_score(EVALUATION)
            self.best = -np.inf if self._score is None else self._score.value

    def step(self, agent: Agent) -> bool | None:
        """Evaluate if it is due, and save the model if it is the best so far."""
        if self._every.due(agent.steps) or agent.finished:
            result = evaluate(agent, self._env, self._episodes, self._seed, deterministic=self._deterministic)
            self.results.append((agent.steps, result))
            agent.metrics.update(
                {
                    "eval/mean_reward": result.mean_return,
                    "eval/std_reward": result.std_return,
                    "eval/mean_ep_length": float(result.lengths.mean()),
                    **({} if result.costs is None else {"eval/mean_cost": float(result.costs.cost.mean())}),
                }
            )
            agent.evaluated = result
            score = agent.model_score(EVALUATION)
            if score.beats(self._score):
                self._score, self.best = score, result.mean_return
                if self.directory is not None:
                    state = agent.state(live=True)
                    document = {**state.document, SCORE: score.document()}
                    Checkpoints(self.directory).save_best(state.arrays, document)
        return None


class Checkpoint(Callback):
    """Saves the agent every `every` steps, and when training ends or is interrupted; keeps the newest checkpoints.

    An agent that was loaded from the directory's newest checkpoint, or was saved there before, continues there. If the
    directory has checkpoints of another training, `exist` decides. "next" uses the next free name, prints it and stores
    it in `directory`. "overwrite" replaces them, "resume" and "error" raise RunExistsError.

    Args:
        directory: Directory of the checkpoints.
        every: Steps between checkpoints, counted over all environments.
        keep: Number of checkpoints to keep.
        exist: What to do if the directory has checkpoints of another training: "next", "overwrite", "resume", "error".
    """

    def __init__(self, directory: str | Path, every: int = 1_000_000, keep: int = 3, *, exist: Exist = NEXT) -> None:
        require_exist(exist, directory, "directory")
        self.directory = Path(directory)
        self.checkpoints = Checkpoints(directory, keep)
        self._exist: Exist = exist
        self._every = Every(every)
        self._saved = -1

    def prepare(self, agent: Agent) -> None:
        """Choose the directory before the first step."""

        def against(found: Checkpoints) -> str | None:
            newest = found.newest()
            if newest is None:
                return None
            step, document = newest
            other = other_setting(document, agent)
            if other is None and (seed := document.get("config", {}).get("seed")) != agent.seed:
                other = "seed", seed, agent.seed
            if other is not None:
                return f"has checkpoints of another training ({_said(other)})"
            return None if step <= agent.steps else f"has a checkpoint of step {step:,} already"

        exist, self._exist = self._exist, NEXT  # further calls of `learn` continue there
        self.directory = _place(self.directory, exist, Checkpoints.newest, against, Checkpoints.clear)
        self.checkpoints = Checkpoints(self.directory, self.checkpoints.keep)

    def start(self, agent: Agent) -> None:
        """Start counting at the agent's step."""
        self._every.start(agent.steps)

    def step(self, agent: Agent) -> bool | None:
        """Save if it is due."""
        if self._every.due(agent.steps):
            self._save(agent)
        return None

    def finish(self, agent: Agent) -> None:
        """Save the final state, unless it was saved at this step."""
        if agent.steps != self._saved:
            self._save(agent)

    def _save(self, agent: Agent) -> None:
        state = agent.state(live=True)
        self.checkpoints.save(agent.steps, state.arrays, state.document)
        self._saved = agent.steps


def _said(other: tuple[str, Any, Any]) -> str:
    """Format the setting in which two trainings differ."""
    name, theirs, ours = other
    return f"{name}={theirs!r}, not {ours!r}"


def _place(
    directory: Path,
    exist: Exist,
    found: Callable[[Checkpoints], Any],
    against: Callable[[Checkpoints], str | None],
    clear: Callable[[Checkpoints], None],
) -> Path:
    """Return the directory to save in, following `exist` if it has models: `directory` itself, or the next free name.

    `found` returns the models of a directory that count. `against` returns why an agent cannot continue there, or None.
    `clear` removes the models.
    """
    place, number = directory, 1
    while True:
        there = Checkpoints(place)
        if exist == "overwrite":
            clear(there)
        elif exist == "error" and found(there) is not None:
            raise RunExistsError(f"{place} has models already: choose another directory")
        elif (reason := against(there)) is not None:
            if exist != NEXT:
                raise RunExistsError(
                    f"{place} {reason}: choose another directory, or load the agent that was saved there"
                )
            number += 1
            place = directory.with_name(f"{directory.name}-{number}")
            continue
        ConfinedPath(place).make_directory()
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        if place != directory:
            tell(f"{directory} {against(Checkpoints(directory))}: this training saves into {place}")
        return place


class StopOnReward(Callback):
    """Stops training when a metric reaches `threshold`; by default the mean return of the last 100 episodes."""

    def __init__(self, threshold: float, metric: str = "rollout/ep_rew_mean") -> None:
        self.threshold, self.metric = threshold, metric

    def step(self, agent: Agent) -> bool | None:
        """Stop if the threshold is reached; a mean over fewer than 100 episodes does not count."""
        value = _metric(agent, self.metric)
        if self.metric.startswith("rollout/") and len(agent.recent.returns) < (agent.recent.returns.maxlen or 0):
            return None
        if value is not None and value >= self.threshold:
            agent.stopping = f"{self.metric} reached {value:.4g}"
            return False
        return None


class EarlyStopping(Callback):
    """Stops when a metric has not improved by `min_change` for `patience` steps, and restores the best model."""

    def __init__(self, patience: int, metric: str = "rollout/ep_rew_mean", min_change: float = 0.0) -> None:
        require(min_change >= 0, "min_change", min_change, "at least 0")
        self._patience = require_count("patience", patience, STEPS)
        self._metric, self._min_change = metric, min_change
        self.best = -np.inf
        self._best_at = 0
        self._best: dict[str, NDArray[Any]] | None = None

    def start(self, agent: Agent) -> None:
        """Start counting at the agent's step."""
        self._best_at = agent.steps

    def step(self, agent: Agent) -> bool | None:
        """Keep the best model; stop after `patience` steps without improvement."""
        value = _metric(agent, self._metric)
        if value is not None and (self._best is None or value > self.best + self._min_change):
            self.best, self._best_at, self._best = value, agent.steps, agent.policy_arrays()
        if agent.steps - self._best_at >= self._patience:
            agent.stopping = (
                f"{self._metric} has not improved on {self.best:.4g} for {agent.steps - self._best_at} steps"
            )
            return False
        return None

    def finish(self, agent: Agent) -> None:
        """Restore the best model."""
        if self._best is not None:
            agent.load_policy_arrays(self._best)


def _metric(agent: Agent, name: str) -> float | None:
    if name not in agent.metrics and not name.startswith("eval/"):  # eval/ metrics are not in every iteration
        raise ValueError(f"there is no metric {name!r}{nearest(name, list(agent.metrics))}")
    value = agent.metrics.get(name)
    return None if value is None else float(value)
