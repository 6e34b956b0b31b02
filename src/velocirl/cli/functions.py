"""Commands as Python functions: `train_seeds`, `plot` and `plot_table`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velocirl.cli.plot.command import plotted_of, require_plot_file, show, write_plot
from velocirl.cli.settings import Request
from velocirl.cli.table.command import choose_shown, picture_of, print_shown, title_of
from velocirl.cli.table.picture import Picture, picture_png, write_picture
from velocirl.cli.train import seeds as training
from velocirl.engine.counts import require_count
from velocirl.engine.environment import Environment
from velocirl.engine.registry import found_anywhere
from velocirl.monitor.attention import in_notebook
from velocirl.runs.curves.comparing import By, Plot, find_subjects
from velocirl.runs.directory import Run
from velocirl.runs.groups import Group
from velocirl.runs.metrics import RETURN
from velocirl.runs.placement import NEXT, Exist
from velocirl.tabular.agent import TabularAgent
from velocirl.training.agent import Agent
from velocirl.training.agent import load as load_agent
from velocirl.training.persistence import algorithm_from
from velocirl.training.presenting import wanted
from velocirl.training.source import Given, compiled_parts


def train_seeds(
    algorithm: str | type[Agent],
    environment: Given,
    seeds: int = 8,
    total_steps: int | None = None,
    *,
    run_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int | None = None,
    target_return: float | None = None,
    exist: Exist = NEXT,
    progress: bool | None = None,
    **settings: Any,
) -> Group:
    """Train agents of one configuration and many seeds over the cores of this machine, as `velocirl train --seeds`.

    `environment` is whatever an algorithm accepts, or `my_env.py[:ID]`. Each seed is a process, to which an object is
    sent: an `Environment`, a Gymnasium environment, or a function that creates one, but not a vector environment.
    `settings` are the algorithm's; `seed` is the first seed.

    Returns:
        The group: `group.summary()` has the mean return with its interval, `velocirl.plot(group)` draws it, and
        `velocirl.load(f"{group.path}/seed-0")` is one of its agents.

    Raises:
        RuntimeError: Seeds failed; the others are trained, and `velocirl resume` continues the group.
    """
    if not isinstance(environment, (str, Environment)) and (parts := compiled_parts(environment)) is not None:
        environment, params, frames = parts
        settings = {**frames, **settings, "params": {**params, **(settings.get("params") or {})} or None}
    if isinstance(environment, Environment) and found_anywhere(environment):
        environment = environment.id
    named = isinstance(environment, str)
    kind = algorithm_from(algorithm) if isinstance(algorithm, str) else algorithm
    counts = {"total_steps": total_steps, "checkpoint_every": checkpoint_every, "evaluate_every": evaluate_every}
    request = Request(
        environment=environment if named else "",
        given=None if named else environment,
        algorithm=kind,
        values=settings,
        **{name: None if count is None else require_count(name, count) for name, count in counts.items()},
        target_return=target_return,
        run_dir=None if run_dir is None else Path(run_dir),
        seeds=require_count("seeds", seeds),
        json=False,
        quiet=not wanted(progress),
        named_by=None,
        trust=False,
        exist=exist,
    )
    try:
        return training.train_seeds(request)
    except SystemExit as error:  # the command's way of failing
        raise RuntimeError("seeds failed: velocirl runs lists the group, velocirl resume continues it") from error


def plot(
    *runs: str | Path | Run | Group,
    metric: str = RETURN,
    x: By = "steps",
    smooth: int = 1,
    group: bool = False,
    out: str | Path | Sequence[str | Path] = (),
) -> Plot:
    """Plot the learning curves of runs and groups of seeds, as `velocirl plot`; without arguments, of the newest.

    `metric` is a metric of metrics.jsonl or the end of its name (`"loss"`), and `x` is "steps" or "time". `smooth` is
    the number of points of a moving mean. With `group`, runs of one algorithm and environment count as seeds of one
    training. `out` names files: .png, .html or .csv.

    Returns:
        The plot, which a notebook shows as an image. In a terminal it is printed immediately, unless `out` is given.
    """
    paths = [Path(out)] if isinstance(out, (str, Path)) else [Path(one) for one in out]
    for path in paths:
        require_plot_file(path)
    named = [str(one.path if isinstance(one, (Run, Group)) else one) for one in runs]
    plotted = plotted_of(find_subjects(named or [None], together=group), metric, x, require_count("smooth", smooth))
    for path in paths:
        write_plot(plotted, path)
    if not paths and not in_notebook():
        show(_console(), plotted)
    return plotted


class TablePicture:
    """Map of a learned table, which a notebook shows as an image."""

    def __init__(self, picture: Picture, title: str) -> None:
        self.picture, self.title = picture, title

    def __repr__(self) -> str:
        rows, columns = self.picture.grid.states.shape
        return f"<map of {self.title}, {rows} x {columns}>"

    def _repr_png_(self) -> bytes | None:
        return picture_png(self.picture, self.title)

    def save(self, path: str | Path) -> Path:
        """Write the map as a PNG."""
        write_picture(Path(path), self.picture, self.title)
        return Path(path)


def plot_table(agent: TabularAgent | str | Path, out: str | Path | None = None) -> TablePicture | None:
    """Show what a tabular agent learned, as `velocirl table`: values and best actions on the map of a grid world.

    `agent` is an agent, a run or a file; `out` names a .png file. For other environments, states or positions are
    printed.

    Returns:
        The map, which a notebook shows as an image; None for environments without a map.
    """
    found = agent if isinstance(agent, Agent) else load_agent(agent)
    if not isinstance(found, TabularAgent):
        raise ValueError(f"{found.label} has no table: plot_table is for QLearning, SARSA and their relatives")
    shown = choose_shown(found, {})
    if shown.grid is None:
        if out is not None:
            raise ValueError(f"{found.source.id} is no grid world, which alone has a map: leave out out=")
        print_shown(_console(), found, shown)
        return None
    picture = TablePicture(picture_of(found, shown.grid), title_of(found))
    if out is not None:
        picture.save(out)
    elif not in_notebook():
        print_shown(_console(), found, shown)
    return picture


def _console() -> Any:
    from velocirl.monitor.console import make_console  # rendering is imported only when needed

    return make_console()
