"""Training as a person sees it: a panel that moves in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from velocirl.monitor.gauges import gauges_of
from velocirl.monitor.heartbeat import phase_shares, trains_on_cuda
from velocirl.monitor.resource_use import ResourceReader
from velocirl.monitor.words import in_lines, say_count, say_figure, say_gauge, say_phases, say_resources, say_seconds
from velocirl.runs.callback import Callback
from velocirl.runs.curve import EVALUATION, RETURN, terminal_plot

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

REFRESH = 0.125  # seconds between two pictures in a terminal
LINE_EVERY = 2.0  # seconds between two lines elsewhere
MOST_POINTS = 1024  # of the curve that is shown; when there are more, every second one is forgotten
WIDEST, NARROWEST = 100, 64  # columns of the panel; below, there is no room for the curve
CURVE_LINES = 9
IN_A_LINE = 5  # figures
LENGTH, EPISODE = "rollout/ep_len_mean", "episode/"  # before the names of what an environment reports
FIGURES = {  # in their order, by what a person calls them
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
WARM_UP = "random actions, nothing is learnt yet"
SPEED_OVER = 5.0  # seconds, by which it is told how long training will take: it slows down when learning begins


class Display(Callback):
    """Shows how training goes. An iteration after which nothing is due costs next to nothing.

    `ending` gives the lines that are printed when training is over. `resources` is given where somebody else reads them
    too.
    """

    def __init__(
        self,
        console: Console,
        ending: Callable[[Agent, float], list[Text]] | None = None,
        resources: ResourceReader | None = None,
    ) -> None:
        self._console = console
        self._ending = ending
        self._resources = ResourceReader() if resources is None else resources
        self._live: Live | None = None
        self._began = self._due = 0.0
        self._steps: list[int] = []
        self._returns: list[float | None] = []
        self._skip = 1  # every so many iterations give a point of the curve
        self._evaluation: float | None = None
        self._seen: deque[tuple[float, int]] = deque()  # times and steps, of the last seconds

    def start(self, agent: Agent) -> None:
        """Open the panel."""
        self._began = time.perf_counter()
        self._seen.append((self._began, agent.steps))
        self._due = self._began + (0.0 if self._console.is_terminal else LINE_EVERY)
        if self._console.is_terminal:
            if trains_on_cuda(agent):
                self._resources.watch_gpu()
            self._live = Live(self._panel(agent), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)

    def step(self, agent: Agent) -> bool | None:
        """Note the figures, and show them where it is time."""
        metrics = agent.metrics
        if agent.iterations % self._skip == 0:
            self._note(agent.steps, metrics.get(RETURN))
        if EVALUATION in metrics:
            self._evaluation = metrics[EVALUATION]
        now = time.perf_counter()
        if now < self._due:
            return None
        self._show(agent)
        # Drawing may take its time, on a slow terminal, but training gets most of it.
        self._due = max(now + (REFRESH if self._live else LINE_EVERY), now + 10 * (time.perf_counter() - now))
        return None

    def finish(self, agent: Agent) -> None:
        """Show the last figures and the ending."""
        self._show(agent)
        self.close()
        for line in [] if self._ending is None else self._ending(agent, time.perf_counter() - self._began):
            self._console.print(line, soft_wrap=True)

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Leave the last picture as it is."""
        self.close()

    def close(self) -> None:
        """Give the terminal back; calling it again does nothing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._resources.close()

    def curve(self, width: int, height: int) -> list[str]:
        """The learning curve so far, in characters."""
        plain = self._console.options.ascii_only
        return terminal_plot(self._steps, self._returns, width, height, ascii_only=plain)

    def _note(self, steps: int, mean: float | None) -> None:
        self._steps.append(steps)
        self._returns.append(mean)
        if len(self._steps) > MOST_POINTS:
            self._skip *= 2
            del self._steps[::2], self._returns[::2]

    def _show(self, agent: Agent) -> None:
        if self._live is not None:
            self._live.update(self._panel(agent), refresh=True)
        elif not self._console.is_terminal:
            self._console.print(self._line(agent), soft_wrap=True, highlight=False, markup=False)

    def _line(self, agent: Agent) -> str:
        goal, metrics = agent.goal, agent.metrics
        assert goal is not None  # noqa: S101 - in training there is one
        named = ((name, metrics.get(key)) for key, name in figures_of(metrics))
        figures = "  ".join([f"{name} {_say(value)}" for name, value in named if value is not None][:IN_A_LINE])
        line = f"{agent.steps:>12,} steps {goal.progress(agent.steps):>4.0%}  {_rate(agent):>8}  {figures}".rstrip()
        return f"{line}  ({WARM_UP})" if _warms_up(agent) else line

    def _panel(self, agent: Agent) -> Panel:
        width = min(self._console.width, WIDEST)
        inner = width - 4
        wide = inner >= NARROWEST
        figures: Table = self._figures(agent)
        if wide:
            columns = inner - 34
            both = Table.grid(padding=(0, 3, 0, 0))
            both.add_column(width=columns)
            both.add_row(Text("\n".join(self.curve(columns, CURVE_LINES)), "cyan", no_wrap=True), figures)
            figures = both
        parts = [
            *self._progress(agent, inner, wide),
            "",
            figures,
            "",
            self._phases(agent, inner),
            self._machine(agent, inner),
        ]
        title = Text.assemble((agent.source.id, "bold"), f"  {agent.name}  seed {agent.config.seed}")
        return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style="dim", width=width)

    def _progress(self, agent: Agent, width: int, wide: bool) -> list[Any]:
        """A bar and what is to be said of it, beside it or, where there is no room, below."""
        goal = agent.goal
        assert goal is not None  # noqa: S101 - in training there is one
        done = min(agent.steps, goal.stop) - goal.start
        rate = self._speed(agent)
        left = say_seconds(max(goal.stop - agent.steps, 0) / rate) if rate else "?"
        text = f"{say_count(agent.steps)} of {say_count(goal.stop)} steps   {_rate(agent)}   {left} left"
        bar = ProgressBar(total=goal.total, completed=done, width=max(8, width - 8 - (len(text) if wide else 0)))
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(bar, f"{goal.progress(agent.steps):>4.0%}", *([Text(text, no_wrap=True)] if wide else []))
        return [line] if wide else [line, Text(text, no_wrap=True)]

    def _figures(self, agent: Agent) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", width=9, no_wrap=True)
        for key, name in figures_of(agent.metrics):
            value = self._evaluation if key == EVALUATION else agent.metrics.get(key)
            if value is not None:
                table.add_row(name, Text(_say(value), "bold" if key in (RETURN, EVALUATION) else ""))
        return table

    def _speed(self, agent: Agent) -> float:
        """Steps per second of the last seconds."""
        now = time.perf_counter()
        self._seen.append((now, agent.steps))
        while len(self._seen) > 2 and self._seen[1][0] < now - SPEED_OVER:
            self._seen.popleft()
        then, steps = self._seen[0]
        return (agent.steps - steps) / max(now - then, 1e-9)

    def _phases(self, agent: Agent, width: int) -> Text:
        if not agent.metrics:
            return Text("starting", "dim")
        if _warms_up(agent):
            return Text(WARM_UP, "dim")
        return Text(in_lines(say_phases(phase_shares(agent.metrics)), width), "dim")

    def _machine(self, agent: Agent, width: int) -> Text:
        """What training takes of the machine, and what it says of itself."""
        gauges = [say_gauge(name, value) for name, value in gauges_of(agent).items()]
        return Text(in_lines([*say_resources(self._resources.read()), *gauges], width), "dim")


def figures_of(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures that are shown, by what a person calls them; after the length of episodes, what they report."""
    for key, name in FIGURES.items():
        yield key, name
        if key == LENGTH:
            reported = (one for one in metrics if one.startswith(EPISODE))
            yield from ((one, one.removeprefix(EPISODE).replace("_", " ")) for one in reported)


def _say(value: float) -> str:
    """A figure; what is counted has no decimals."""
    return say_count(value) if isinstance(value, int) else say_figure(value)


def _warms_up(agent: Agent) -> bool:
    """Whether the agent only fills its memory so far."""
    return agent.metrics.get("train/n_updates") == 0


def _rate(agent: Agent) -> str:
    return f"{say_count(float(agent.metrics.get('time/fps') or 0.0))}/s"
