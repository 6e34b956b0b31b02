"""One training from scratch, with the policy's quality over time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from velocirl.runs.callback import Callback
from velocirl.training.agent import Agent
from velocirl.training.evaluation import evaluate

EVALUATIONS = 20  # per training, evenly spaced as far as its iterations allow
EPISODES, HOST_EPISODES = 100, 20  # per evaluation: of a compiled environment, of one in Python
EVALUATION_SEED = 0  # the same episodes for every candidate
LONGEST = 50_000  # steps of an evaluation; beyond, a policy counts as stuck


@dataclass(frozen=True)
class Trial:
    """Result of one training."""

    seed: int
    untrained: float  # mean return before training
    returns: tuple[float, ...]  # mean return at each evaluation; the last one is after training
    seconds: tuple[float, ...]  # of training until each evaluation, without evaluations
    steps: tuple[int, ...]

    @property
    def final(self) -> float:
        """Mean return after training."""
        return self.returns[-1]

    def steps_to(self, quality: float) -> int | None:
        """Return the steps after which the mean return first reached `quality`; None if it never did."""
        return next((at for at, found in zip(self.steps, self.returns, strict=True) if found >= quality), None)


class StuckError(RuntimeError):
    """Error for a policy whose episodes do not end."""


def run_trial(
    agent: Agent, total_steps: int, enough: float = math.inf, attend: Callable[[], object] = lambda: None
) -> Trial:
    """Train an agent from scratch; once its return is `enough`, it is evaluated again only at the end.

    `attend` is called before training begins, and may raise.
    """
    agent.prepare()
    untrained = score(agent)
    attend()
    curve = _Curve(total_steps, enough)
    agent.learn(total_steps, curve)
    return Trial(agent.seed, untrained, tuple(curve.returns), tuple(curve.seconds), tuple(curve.steps))


def score(agent: Agent) -> float:
    """Return the mean return of the deterministic policy; minus infinity if its episodes do not end."""
    episodes = HOST_EPISODES if agent.source.native is None else EPISODES
    try:
        return evaluate(_Watched(agent), episodes=episodes, seed=EVALUATION_SEED).mean_return
    except StuckError:
        return -math.inf


class _Watched:
    """Model that raises `StuckError` where an environment without a time limit would let it play forever."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.source = agent.source
        self._calls = 0

    def predict(self, observation: Any, /, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        self._calls += 1
        if self._calls > LONGEST:
            raise StuckError
        return self._agent.predict(observation, *arguments, **more)


class _Curve(Callback):
    """Callback that evaluates at intervals, with the clock stopped."""

    def __init__(self, total_steps: int, enough: float) -> None:
        self._enough = enough
        self._every = max(total_steps // EVALUATIONS, 1)
        self._next = self._every
        self._resumed = self._spent = 0.0
        self.returns: list[float] = []
        self.seconds: list[float] = []
        self.steps: list[int] = []

    def start(self, agent: Agent) -> None:  # noqa: ARG002
        """Start the clock, after compilation."""
        self._resumed = time.perf_counter()

    def step(self, agent: Agent) -> None:
        """Evaluate if an evaluation is due."""
        if agent.steps >= self._next and max(self.returns, default=-math.inf) < self._enough:
            self._next = agent.steps - agent.steps % self._every + self._every
            self._look(agent)

    def finish(self, agent: Agent) -> None:
        """Evaluate the final policy, unless it was just evaluated."""
        if not self.steps or self.steps[-1] != agent.steps:
            self._look(agent)

    def _look(self, agent: Agent) -> None:
        self._spent += time.perf_counter() - self._resumed
        self.returns.append(score(agent))
        self.seconds.append(self._spent)
        self.steps.append(agent.steps)
        self._resumed = time.perf_counter()
