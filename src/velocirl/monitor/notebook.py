"""Progress display in a notebook: one output of plain HTML and SVG, updated in place.

It needs neither widgets nor scripts, so every front end can show it: Jupyter, VS Code and Colab.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from velocirl.monitor.markup import Markup, number, tag
from velocirl.monitor.resource_use import ResourceReader
from velocirl.monitor.scales import linear
from velocirl.monitor.watcher import COMPILING, Ending, Watcher
from velocirl.monitor.words import GAP as WIDE
from velocirl.monitor.words import say_figure
from velocirl.runs.metrics import EVALUATION, RETURN

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

GAP = " · "  # between two items of a line, as HTML collapses repeated spaces
REFRESH = 0.5  # seconds between two updates: each is sent to a browser
WIDTH, HEIGHT, MARGIN = 420.0, 130.0, 54.0  # of the curve, and the width of its labels
BLUE = "#3a7ac4"
FRAME = "max-width: 52em; padding: .4em .1em; line-height: 1.5; font-variant-numeric: tabular-nums"
FAINT = "opacity: .7; font-size: .9em"
CELL = "border: 0; padding: 0 1.2em 0 0; text-align: {}; background: none"


class NotebookDisplay(Watcher):
    """Progress display in the output of the notebook cell that trains."""

    def __init__(
        self, ending: Ending | None = None, resources: ResourceReader | None = None, *, after: float = 0.0
    ) -> None:
        super().__init__(ending, resources, after)
        from IPython.display import display  # pyright: ignore[reportMissingImports] - there is one, in a notebook

        self._display = display
        self._handle: Any = None
        self._parts: list[Markup] = []  # of the last update
        self._compiled = ""  # how long compiling took

    @property
    def every(self) -> float:
        """Seconds between two updates."""
        return REFRESH

    def say_compiling(self) -> None:
        """Show that code is being compiled."""
        self._put([tag("div", COMPILING, " ...", style=FAINT)], COMPILING)

    def say_compiled(self, seconds: float | None) -> None:
        """Store how long compiling took, to be shown below the curve."""
        self._compiled = "" if seconds is None else f"compiled for this processor in {seconds:.1f} s, once"

    def open(self, agent: Agent) -> None:
        """Show the first output."""
        self.watch_gpu(agent)
        self.draw(agent)

    def draw(self, agent: Agent) -> None:
        """Update the output."""
        goal, said = agent.goal, self.progress(agent)
        assert goal is not None  # noqa: S101 - in training there is one
        share = goal.progress(agent.steps)
        what = tag("div", tag("b", agent.source.id), f" {agent.name}, seed {agent.config.seed}")
        bar = tag("progress", value=number(1000.0 * share), max="1000", style="width: 14em; vertical-align: middle")
        words = tag("div", bar, f" {share:.0%}{GAP}{said.replace(WIDE, GAP)}")
        faint = [agent.device_reason and f"on {agent.device_reason}", agent.network_reason, self._compiled]
        lines = [GAP.join(self.phases(agent)), GAP.join(self.machine(agent)), *self.advice(agent), *filter(None, faint)]
        figures = tag("div", self._figures(agent), curve(self.steps, self.returns), style="display: flex; gap: 2em")
        parts = [what, words, figures, *(tag("div", line, style=FAINT) for line in lines)]
        self._put(parts, f"{agent.source.id} {agent.name}: {said}")

    def say_ending(self, lines: list[Any]) -> None:
        """Append the last lines."""
        words = [line.plain for line in lines]
        if words:
            self._put([*self._parts, *(tag("div", line) for line in words)], "\n".join(words))

    def close(self) -> None:
        """Do nothing: the last output stays."""

    def _figures(self, agent: Agent) -> Markup:
        rows = []
        for name, words, key in self.figures(agent):
            value = tag("b", words) if key in (RETURN, EVALUATION) else words
            cells = tag("td", name, style=CELL.format("left")), tag("td", value, style=CELL.format("right"))
            rows.append(tag("tr", *cells, style="background: none"))
        return tag("table", tag("tbody", *rows), style="margin: .3em 0; border: 0; font-size: .95em")

    def _put(self, parts: list[Markup], text: str) -> None:
        self._parts = parts
        bundle = {"text/html": str(tag("div", *parts, style=FRAME)), "text/plain": text}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def curve(steps: list[int], returns: list[float | None]) -> Markup:
    """Draw the learning curve as a small SVG, labeled with its lowest and highest value; empty with under 2 points."""
    points = [(x, y) for x, y in zip(steps, returns, strict=True) if y is not None and math.isfinite(y)]
    if len(points) < 2:
        return Markup()
    across = linear([x for x, _ in points], MARGIN, WIDTH - 4.0, zero=True)
    up = linear([y for _, y in points], HEIGHT - 8.0, 8.0)
    places = " ".join(f"{number(across(x))},{number(up(y))}" for x, y in points)
    line = tag("polyline", points=places, fill="none", stroke=BLUE, stroke_width=1.6)
    ends = min(y for _, y in points), max(y for _, y in points)
    style = {"text_anchor": "end", "font_size": 11, "fill": "currentColor", "opacity": 0.7}
    labels = [tag("text", say_figure(y), x=MARGIN - 6.0, y=up(y) + 4.0, **style) for y in dict.fromkeys(ends)]
    label = f"mean return, from {say_figure(points[0][1])} to {say_figure(points[-1][1])}"
    return tag("svg", *labels, line, role="img", aria_label=label, width=WIDTH, height=HEIGHT)
