"""One training from scratch, and how good its policy was at which second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from velocirl.runs.callback import Callback
from velocirl.training.agent import Agent
from velocirl.training.evaluation import evaluate

EVALUATIONS = 20  # of a training, at equal distances as far as its iterations allow
EPISODES, HOST_EPISODES = 100, 20  # of an evaluation: of a compiled environment, and of one in Python
EVALUATION_SEED = 0  # the same episodes for everybody
LONGEST = 50_000  # steps of an evaluation, after which a policy has got stuck


@dataclass(frozen=True)
class Trial:
    """What came of one training."""

    seed: int
    untrained: float  # the mean return before it began
    returns: tuple[float, ...]  # the mean return at each evaluation; the last one is that of the end
    seconds: tuple[float, ...]  # of training until then; evaluating is not counted
    steps: tuple[int, ...]

    @property
    def final(self) -> float:
        """The mean return at the end."""
        return self.returns[-1]

    def steps_to(self, quality: float) -> int | None:
        """The steps after which a mean return was first reached; None where it never was."""
        return next((at for at, found in zip(self.steps, self.returns, strict=True) if found >= quality), None)


class StuckError(RuntimeError):
    """A policy whose episodes do not end."""


def run_trial(
    agent: Agent, total_steps: int, enough: float = math.inf, attend: Callable[[], object] = lambda: None
) -> Trial:
    """Train an agent from scratch; once its return is `enough`, it is looked at again only at the end.

    `attend` is called before the training begins, and may raise.
    """
    agent.prepare()
    untrained = score(agent)
    attend()
    curve = _Curve(total_steps, enough)
    agent.learn(total_steps, curve)
    return Trial(agent.seed, untrained, tuple(curve.returns), tuple(curve.seconds), tuple(curve.steps))


def score(agent: Agent) -> float:
    """The mean return of a policy without chance; minus infinity where its episodes do not end."""
    episodes = HOST_EPISODES if agent.source.native is None else EPISODES
    try:
        return evaluate(_Watched(agent), episodes=episodes, seed=EVALUATION_SEED).mean_return
    except StuckError:
        return -math.inf


class _Watched:
    """A model that gives up where an environment without a time limit would let it play for ever."""

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
    """Evaluates now and then, with the clock stopped."""

    def __init__(self, total_steps: int, enough: float) -> None:
        self._enough = enough
        self._every = max(total_steps // EVALUATIONS, 1)
        self._next = self._every
        self._resumed = self._spent = 0.0
        self.returns: list[float] = []
        self.seconds: list[float] = []
        self.steps: list[int] = []

    def start(self, agent: Agent) -> None:  # noqa: ARG002
        """Start the clock: what had to be compiled is compiled."""
        self._resumed = time.perf_counter()

    def step(self, agent: Agent) -> None:
        """Evaluate where it is time."""
        if agent.steps >= self._next and max(self.returns, default=-math.inf) < self._enough:
            self._next = agent.steps - agent.steps % self._every + self._every
            self._look(agent)

    def finish(self, agent: Agent) -> None:
        """Evaluate what was learnt in the end, unless that was done just now."""
        if not self.steps or self.steps[-1] != agent.steps:
            self._look(agent)

    def _look(self, agent: Agent) -> None:
        self._spent += time.perf_counter() - self._resumed
        self.returns.append(score(agent))
        self.seconds.append(self._spent)
        self.steps.append(agent.steps)
        self._resumed = time.perf_counter()
