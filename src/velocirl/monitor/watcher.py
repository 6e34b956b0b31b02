"""Base class of progress displays: when to show something, and the values to show."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from velocirl.engine.compiler.caching.cache import cached_files
from velocirl.monitor.advice import advise
from velocirl.monitor.gauges import gauges_of
from velocirl.monitor.heartbeat import phase_shares, trains_on_cuda
from velocirl.monitor.resource_use import ResourceReader
from velocirl.monitor.words import say_count, say_figure, say_gauge, say_others, say_phases, say_resources, say_seconds
from velocirl.runs.callback import Callback
from velocirl.runs.metrics import EVALUATION, RETURN

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

Ending = Callable[[Any, float], list[Any]]  # from agent and seconds: lines of rich's Text
MOST_POINTS = 1024  # of the displayed curve; beyond it, every second point is dropped
LENGTH, EPISODE = "rollout/ep_len_mean", "episode/"  # prefix of what an environment reports
FIGURES = {  # label of each metric, in display order
    RETURN: "return",
    EVALUATION: "evaluation",
    LENGTH: "episode length",
    "rollout/exploration_rate": "exploration",
    "train/policy_gradient_loss": "policy loss",
    "train/value_loss": "value loss",
    "train/actor_loss": "actor loss",
    "train/critic_loss": "critic loss",
    "train/loss": "loss",
    "train/td_error": "TD error",
    "train/action_value": "action value",
    "train/ent_coef": "temperature",
    "train/entropy_loss": "entropy loss",
    "train/explained_variance": "explained variance",
    "train/approx_kl": "approx. KL",
    "train/learning_rate": "learning rate",
    "train/n_updates": "updates",
    "train/states": "states",
}
COMPILING = "compiling for this processor, once"
WARM_UP = "random actions, nothing is learnt yet"
SPEED_OVER = 5.0  # seconds over which the speed is measured for the remaining time: learning slows training down


class Watcher(Callback):
    """Base class of progress displays; subclasses render. An iteration without an update costs almost nothing.

    `ending` returns the lines to show when training is over. Pass `resources` if another object reads them too. Nothing
    is shown if training is over within `after` seconds.
    """

    def __init__(
        self, ending: Ending | None = None, resources: ResourceReader | None = None, after: float = 0.0
    ) -> None:
        self.after = after
        self.shown = False  # whether something is displayed
        self.steps: list[int] = []  # of the curve
        self.returns: list[float | None] = []
        self._ending = ending
        self._resources = ResourceReader() if resources is None else resources
        self._asked: float | None = None  # when training was requested
        self._cached: set[Any] = set()
        self._timer: threading.Timer | None = None
        self._compiling = False  # whether compiling is displayed
        self._began = self._due = 0.0
        self._skip = 1  # every N iterations give a point of the curve
        self._evaluation: float | None = None
        self._seen: deque[tuple[float, int]] = deque()  # times and steps of the last seconds

    @property
    @abstractmethod
    def every(self) -> float:
        """Seconds between two updates of the display."""

    @abstractmethod
    def open(self, agent: Agent) -> None:
        """Open the display."""

    @abstractmethod
    def draw(self, agent: Agent) -> None:
        """Show the current state."""

    @abstractmethod
    def say_compiling(self) -> None:
        """Show that code is being compiled; another thread may call this."""

    @abstractmethod
    def say_compiled(self, seconds: float | None) -> None:
        """Show that compiling is done; `seconds` is its duration, or None if nothing was compiled."""

    @abstractmethod
    def say_ending(self, lines: list[Any]) -> None:
        """Show the last lines."""

    @abstractmethod
    def close(self) -> None:
        """Close the display; further calls do nothing."""

    def prepare(self, agent: Agent) -> None:  # noqa: ARG002 - a callback's signature
        """Show that code is being compiled, once that has taken a while."""
        self._asked, self._cached = time.perf_counter(), cached_files()
        if self.after > 0.0:
            self._timer = threading.Timer(self.after, self._say_compiling)
            self._timer.daemon = True
            self._timer.start()
        else:
            self._say_compiling()

    def start(self, agent: Agent) -> None:
        """Show the first frame, or wait until one is due."""
        self._end_compiling()
        self.shown = False
        self._began = time.perf_counter()
        self._seen.append((self._began, agent.steps))
        asked = self._began if self._asked is None else self._asked
        self._due = max(self._began + self.every, asked + self.after)
        if self.after <= 0.0:
            self._open(agent)

    def step(self, agent: Agent) -> bool | None:
        """Store the metrics, and show them if that is due."""
        metrics = agent.metrics
        if agent.iterations % self._skip == 0:
            self._note(agent.steps, metrics.get(RETURN))
        if EVALUATION in metrics:
            self._evaluation = metrics[EVALUATION]
        now = time.perf_counter()
        if now < self._due:
            return None
        self._show(agent)
        # Drawing may be slow on some terminals, but training gets most of the time.
        self._due = max(now + self.every, now + 10 * (time.perf_counter() - now))
        return None

    def finish(self, agent: Agent) -> None:
        """Show the last metrics and the ending."""
        if self.shown or self.after <= 0.0:
            self._show(agent)
            self.say_ending([] if self._ending is None else self._ending(agent, time.perf_counter() - self._began))
        self.end()

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Close the display, leaving its last frame."""
        self.end()

    def end(self) -> None:
        """Close the display and stop all helpers; further calls do nothing."""
        self._end_compiling()
        self.close()
        self._resources.close()

    def speed(self, agent: Agent) -> float:
        """Return the steps per second over the last seconds."""
        now = time.perf_counter()
        self._seen.append((now, agent.steps))
        while len(self._seen) > 2 and self._seen[1][0] < now - SPEED_OVER:
            self._seen.popleft()
        then, steps = self._seen[0]
        return (agent.steps - steps) / max(now - then, 1e-9)

    def progress(self, agent: Agent) -> str:
        """Format steps done, speed and remaining time: 50k of 100k steps   1.2M/s   3.1 s left."""
        goal, rate = agent.goal, self.speed(agent)
        assert goal is not None  # noqa: S101 - in training there is one
        left = say_seconds(max(goal.stop - agent.steps, 0) / rate) if rate else "?"
        return f"{say_count(agent.steps)} of {say_count(goal.stop)} {agent.counted}   {say_rate(agent)}   {left} left"

    def figures(self, agent: Agent) -> Iterator[tuple[str, str, str]]:
        """Yield label, formatted value and key of each available metric."""
        for key, name in figures_of(agent.metrics):
            value = self._evaluation if key == EVALUATION else agent.metrics.get(key)
            if value is not None:
                yield name, say_value(value), key

    def phases(self, agent: Agent) -> list[str]:
        """Format the fractions of the time per phase."""
        if not agent.metrics:
            return ["starting"]
        return [WARM_UP] if warms_up(agent) else say_phases(phase_shares(agent.metrics))

    def machine(self, agent: Agent) -> list[str]:
        """Format resource use and gauges."""
        gauges = [say_gauge(name, value) for name, value in gauges_of(agent).items()]
        return [*say_resources(self._resources.read()), *gauges]

    def other_programs(self) -> str | None:
        """Format how many cores other programs keep busy; None if that is not notable."""
        return say_others(self._resources.read())

    def advice(self, agent: Agent) -> list[str]:
        """Return advice for faster training, if one side waits for the other."""
        return [] if warms_up(agent) else advise(gauges_of(agent), phase_shares(agent.metrics), self._resources.read())

    def watch_gpu(self, agent: Agent) -> None:
        """Include the GPU in the resources, if it is used."""
        if trains_on_cuda(agent):
            self._resources.watch_gpu()

    def _open(self, agent: Agent) -> None:
        self.shown = True
        self.open(agent)

    def _show(self, agent: Agent) -> None:
        if not self.shown:
            self._open(agent)
        self.draw(agent)

    def _note(self, steps: int, mean: float | None) -> None:
        self.steps.append(steps)
        self.returns.append(mean)
        if len(self.steps) > MOST_POINTS:
            self._skip *= 2
            del self.steps[::2], self.returns[::2]

    def _say_compiling(self) -> None:
        self._compiling = True
        self.say_compiling()

    def _end_compiling(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        if self._compiling and self._asked is not None:
            self._compiling = False
            self.say_compiled(time.perf_counter() - self._asked if cached_files() - self._cached else None)


def figures_of(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and label of the metrics to show; those of the environment follow the episode length."""
    for key, name in FIGURES.items():
        yield key, name
        if key == LENGTH:
            reported = (one for one in metrics if one.startswith(EPISODE))
            yield from ((one, one.removeprefix(EPISODE).replace("_", " ")) for one in reported)


def say_value(value: float) -> str:
    """Format a value; an integer is a count and has no decimals."""
    return say_count(value) if isinstance(value, int) else say_figure(value)


def say_rate(agent: Agent) -> str:
    """Format the speed since training began."""
    return f"{say_count(float(agent.metrics.get('time/fps') or 0.0))}/s"


def warms_up(agent: Agent) -> bool:
    """Return whether the agent still fills its replay buffer without updates."""
    return agent.metrics.get("train/n_updates") == 0
