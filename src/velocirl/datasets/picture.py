"""Dataset plots: returns next to the references, episode lengths, and the distribution of each number."""

from __future__ import annotations

import io
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import ACTIONS, OBSERVATIONS
from velocirl.buffers.data.dataset import Dataset
from velocirl.datasets.summary import channels
from velocirl.monitor.words import plural
from velocirl.runs.curves.curve import FAINT, INK, PALETTE
from velocirl.trajectories.picture import RED, require_matplotlib

BINS = 50
COLUMNS, WIDTH, HEIGHT, TITLE = 4, 3.4, 2.2, 0.6  # panels per row, panel size in inches, and height of the title
MOST_PANELS = 40
MOST_VALUES = 200_000  # of a number, equally spaced
COLORS = {"episodes": PALETTE[0], OBSERVATIONS: PALETTE[1], ACTIONS: PALETTE[2]}
REFERENCE_STYLES = {"random": ":", "operator": "-.", "expert": "--"}


def dataset_png(dataset: Dataset) -> bytes:
    """Plot histograms: returns and lengths of episodes, rewards, and each number of observations and actions."""
    require_matplotlib()
    from matplotlib.figure import Figure

    if not dataset.episodes:
        raise ValueError("there is nothing to draw: the data set has no episodes")
    panels: list[tuple[str, str, NDArray[Any], tuple[float, float] | None]] = [
        ("return of an episode", "episodes", dataset.returns(), None),
        ("length of an episode [steps]", "episodes", dataset.lengths(), None),
        ("reward of a step", "episodes", _some(dataset.rewards), None),
    ]
    for place, name in enumerate(dataset.info.constraints):
        panels.append((f"cost of an episode: {name}", "episodes", dataset.episode_costs()[:, place], None))
    for kind in (OBSERVATIONS, ACTIONS):
        for name, unit, column, place, limits in channels(dataset, kind):
            named = f"{name} [{unit}]" if unit not in ("", "1") else name
            values = _some(column).reshape(-1, int(np.prod(column.shape[1:])))[:, place]
            panels.append((f"{named}{', actuator' if kind == ACTIONS else ''}", kind, values, limits))
    panels = panels[:MOST_PANELS]
    columns = min(COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + TITLE), dpi=110, layout="constrained")
    for number, (title, kind, values, limits) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw(axes, title, values, COLORS[kind], limits if kind == ACTIONS else None)
        if number == 0:
            _draw_references(axes, dataset)
    figure.suptitle(_headline(dataset), x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold", parse_math=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor="white")
    return picture.getvalue()


def _draw(axes: Any, title: str, values: NDArray[Any], color: str, limits: tuple[float, float] | None) -> None:
    values = np.asarray(values, np.float64)
    kinds = np.unique(values[: BINS * 100]) if len(values) else values
    if len(kinds) <= BINS // 2 and len(kinds) == len(np.unique(values)):  # choices or a constant: one bar each
        least, greatest = kinds.min(), kinds.max()
        room = (greatest - least) / 2 or 1.0
        width = min(0.8 * np.diff(kinds).min(), room / 5) if len(kinds) > 1 else room / 10
        axes.bar(kinds, [(values == one).sum() for one in kinds], width=width, color=color)
        axes.set_xlim(least - room / 2, greatest + room / 2)
    else:
        axes.hist(values, bins=BINS, color=color)
    for limit in limits or ():
        axes.axvline(limit, color=RED, linewidth=1.2, linestyle="--")
    axes.set_title(title, loc="left", color=INK, fontsize=9, parse_math=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.set_yticks([])
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=8)
    axes.locator_params(axis="x", nbins=5)


def _draw_references(axes: Any, dataset: Dataset) -> None:
    for name, value in dataset.info.references.items():
        axes.axvline(value, color=INK, linewidth=1.1, linestyle=REFERENCE_STYLES[name], label=name)
    if dataset.info.references:
        axes.legend(frameon=False, fontsize=7, labelcolor=INK)


def _headline(dataset: Dataset) -> str:
    of = [word for word in (dataset.info.environment, dataset.info.level) if word]
    return f"{' '.join(of) or 'data'}: {plural(len(dataset), 'transition')} in {plural(dataset.episodes, 'episode')}"


def _some(column: NDArray[Any]) -> NDArray[Any]:
    return column[:: max(len(column) // MOST_VALUES, 1)]
