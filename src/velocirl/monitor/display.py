"""Progress display on a console: a live panel in a terminal, occasional lines elsewhere."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table
from rich.text import Text

from velocirl.monitor.resource_use import ResourceReader
from velocirl.monitor.watcher import COMPILING, WARM_UP, Ending, Watcher, figures_of, say_rate, say_value, warms_up
from velocirl.monitor.words import in_lines
from velocirl.runs.curves.characters import terminal_plot
from velocirl.runs.metrics import EVALUATION, RETURN

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

REFRESH = 0.125  # seconds between two frames in a terminal
LINE_EVERY = 2.0  # seconds between two lines elsewhere
WIDEST, NARROWEST = 100, 64  # columns of the panel; below NARROWEST the curve does not fit
CURVE_LINES = 9
IN_A_LINE = 5  # metrics


class Display(Watcher):
    """Progress display on a console; `indent` precedes the messages about compiling."""

    def __init__(
        self,
        console: Console,
        ending: Ending | None = None,
        resources: ResourceReader | None = None,
        *,
        after: float = 0.0,
        indent: str = "",
    ) -> None:
        super().__init__(ending, resources, after)
        self._console = console
        self._indent = indent
        self._live: Live | None = None
        self._status: Status | None = None
        self._soon: threading.Timer | None = None

    @property
    def every(self) -> float:
        """Seconds between two frames or lines."""
        return REFRESH if self._console.is_terminal else LINE_EVERY

    def prepare(self, agent: Agent) -> None:
        """Print the device, then report compiling."""
        if self.after <= 0.0:
            self._say_device(agent)
        super().prepare(agent)

    def say_compiling(self) -> None:
        """Show that code is being compiled."""
        if not self._console.is_terminal:  # a printed line stays, so print it only if compiling takes long
            line = f"{self._indent}{COMPILING} ..."
            self._soon = threading.Timer(LINE_EVERY, partial(self._console.print, line, style="dim"))
            self._soon.daemon = True
            self._soon.start()
            return
        self._status = self._console.status(f"{self._indent}{COMPILING}")
        self._status.start()

    def say_compiled(self, seconds: float | None) -> None:
        """Report how long compiling took; later runs only load the code."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon.join()
            self._soon = None
        if self._status is not None:
            self._status.stop()
            self._status = None
        if seconds is not None:
            text = f"{self._indent}compiled for this processor in {seconds:.1f} s, once"
            self._console.print(text, style="dim")

    def open(self, agent: Agent) -> None:
        """Open the panel."""
        if self.after > 0.0:
            self._say_device(agent)
        if self._console.is_terminal:
            self.watch_gpu(agent)
            self._live = Live(self._panel(agent), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)

    def draw(self, agent: Agent) -> None:
        """Show the current state."""
        if self._live is not None:
            self._live.update(self._panel(agent), refresh=True)
        elif not self._console.is_terminal:
            self._console.print(self._line(agent), soft_wrap=True, highlight=False, markup=False)

    def say_ending(self, lines: list[Any]) -> None:
        """Print the last lines below the panel."""
        self.close()
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """Close the panel and restore the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def curve(self, width: int, height: int) -> list[str]:
        """Return the learning curve so far as lines of characters."""
        return terminal_plot(self.steps, self.returns, width, height, ascii_only=self._console.options.ascii_only)

    def _say_device(self, agent: Agent) -> None:
        if agent.device_reason:
            self._console.print(f"on {agent.device_reason}", style="dim", markup=False)
        if agent.network_reason:
            self._console.print(agent.network_reason, style="dim", markup=False, soft_wrap=True)

    def _line(self, agent: Agent) -> str:
        goal, metrics = agent.goal, agent.metrics
        assert goal is not None  # noqa: S101 - in training there is one
        named = ((name, metrics.get(key)) for key, name in figures_of(metrics))
        figures = "  ".join([f"{name} {say_value(value)}" for name, value in named if value is not None][:IN_A_LINE])
        done = f"{agent.steps:>12,} {agent.counted} {goal.progress(agent.steps):>4.0%}"
        line = f"{done}  {say_rate(agent):>8}  {figures}".rstrip()
        others = self.other_programs()
        line = f"{line}  ({others})" if others else line
        return f"{line}  ({WARM_UP})" if warms_up(agent) else line

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
            Text(in_lines(self.phases(agent), inner), "dim"),
            Text(in_lines(self.machine(agent), inner), "dim"),
            *(Text(words, "yellow") for words in self.advice(agent)),
        ]
        title = Text.assemble((agent.source.id, "bold"), f"  {agent.name}  seed {agent.config.seed}")
        return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style="dim", width=width)

    def _progress(self, agent: Agent, width: int, wide: bool) -> list[Any]:
        """Return a progress bar with its text to the right or, without room, below."""
        goal, text = agent.goal, self.progress(agent)
        assert goal is not None  # noqa: S101 - in training there is one
        done = min(agent.steps, goal.stop) - goal.start
        bar = ProgressBar(total=goal.total, completed=done, width=max(8, width - 8 - (len(text) if wide else 0)))
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(bar, f"{goal.progress(agent.steps):>4.0%}", *([Text(text, no_wrap=True)] if wide else []))
        return [line] if wide else [line, Text(text, no_wrap=True)]

    def _figures(self, agent: Agent) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", width=9, no_wrap=True)
        for name, words, key in self.figures(agent):
            table.add_row(name, Text(words, "bold" if key in (RETURN, EVALUATION) else ""))
        return table
