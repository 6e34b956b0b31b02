"""`velocirl plot`: learning curves of runs and of groups of seeds, for comparison."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.bench.files import require_writable
from velocirl.cli.parsing import Parser, one_of, whole_number
from velocirl.cli.plot.words import end_of
from velocirl.engine.disk.writing import write_shared
from velocirl.engine.naming import nearest
from velocirl.monitor.watcher import FIGURES
from velocirl.monitor.words import printable
from velocirl.runs.curves.characters import SIGNS, Line, plot_lines
from velocirl.runs.curves.comparing import Curve, Plot, PlotLine, Subject, find_subjects, known_metrics, plot_of
from velocirl.runs.curves.curve import legend, plot_png
from velocirl.runs.metrics import RETURN

if TYPE_CHECKING:
    from rich.console import Console

WIDEST, HEIGHT = 110, 20  # of the plot in a terminal
COLORS = ("bright_blue", "yellow", "green", "magenta", "red", "cyan", "bright_white", "bright_black")
MOST_LINES = 24
FILES = (".png", ".html", ".csv")


def plot(arguments: Sequence[str]) -> None:
    """Plot runs in the terminal, or as an image, a page or data."""
    given = _parser().parse(arguments)
    _check(given)
    subjects = find_subjects(given.get("runs") or [None], together="group" in given)
    if len(subjects) > MOST_LINES:
        raise ValueError(f"{len(subjects)} lines are more than anybody can tell apart: choose {MOST_LINES} at most")
    plotted = plotted_of(subjects, given.get("metric", RETURN), given.get("x", "steps"), given.get("smooth", 1))
    for path in given.get("out", ()):
        write_plot(plotted, path)
    if "json" in given:
        print(json.dumps(as_json(plotted), allow_nan=False))
        return
    from velocirl.monitor.console import make_console  # rendering is imported only when needed

    console = make_console()
    show(console, plotted)
    for path in given.get("out", ()):
        console.print(f"{path.suffix[1:]:<5} {path.resolve()}", style="dim", markup=False, soft_wrap=True)


def plotted_of(subjects: Sequence[Subject], word: str, by: Any, smooth: int) -> Plot:
    """Return the plot of runs and groups; warns about those without data for it."""
    metric = choose_metric(word, subjects)
    plotted = plot_of(subjects, metric, by, smooth)
    if not plotted.lines:
        raise ValueError(f"{', '.join(one.name for one in subjects)}: no run has a figure of {metric!r} yet")
    _mention(subjects, plotted)
    return plotted


def choose_metric(word: str, subjects: Sequence[Subject]) -> str:
    """Return the metric that a word means: its full name, the end of it, or its label in displays."""
    known = known_metrics(subjects) or [RETURN]
    named = [key for key, name in FIGURES.items() if name == word and key in known]
    for found in ([word] if word in known else [], named, [one for one in known if one.endswith(f"/{word}")]):
        if len(found) == 1:
            return found[0]
    if word == RETURN:  # every run has it once an episode has ended
        return word
    raise ValueError(f"there is no figure {word!r} in these runs{nearest(word, [*known, *FIGURES.values()])}")


def show(console: Console, plotted: Plot) -> None:
    """Print the plot in a terminal, with its legend below."""
    from rich.text import Text

    colored = console.color_system is not None
    lines, owners = [], []
    for place, one in enumerate(plotted.lines):
        lines.append(Line(one.curve.x.tolist(), one.curve.y.tolist()))
        owners.append(place)
    for place, one in enumerate(plotted.lines):
        if one.evaluation is not None and colored:  # as dots in the color of their line
            lines.append(Line(one.evaluation.x.tolist(), one.evaluation.y.tolist(), joined=False))
            owners.append(place)
    plain, several = console.options.ascii_only, len(plotted.lines) > 1
    drawn = plot_lines(
        lines, min(console.width, WIDEST), HEIGHT, signs=plain or (several and not colored), ascii_only=plain
    )
    console.print(f"{plotted.y_label}: {plotted.title}", style="bold", markup=False)
    for line in drawn:
        said = Text()
        for text, owner in line:
            said.append(text, "dim" if owner is None else COLORS[owners[owner] % len(COLORS)])
        console.print(said, soft_wrap=True)
    console.print(f"{plotted.x_label:>{min(console.width, WIDEST)}}", style="dim", markup=False)
    for place, one in enumerate(plotted.lines):
        sign = SIGNS[place % len(SIGNS)] if plain or not colored else "━━"
        said = Text.assemble((sign if several else "", COLORS[place % len(COLORS)]), " " * several, _says(one, plotted))
        console.print(said, soft_wrap=True)


def as_json(plotted: Plot) -> dict[str, Any]:
    """Convert all lines to JSON values."""
    return {
        "metric": plotted.metric,
        "x": plotted.by,
        "lines": [
            {
                "name": one.subject.name,
                "algorithm": one.subject.algorithm,
                "environment": one.subject.environment,
                **_points(one.curve),
                "evaluation": None if one.evaluation is None else _points(one.evaluation),
            }
            for one in plotted.lines
        ],
    }


def as_csv(plotted: Plot) -> str:
    """Convert to CSV, with a row for each point of each line."""
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["name", "figure", plotted.by, "value", "low", "high"])
    for one in plotted.lines:
        for figure, curve in ((plotted.metric, one.curve), ("evaluation", one.evaluation)):
            points = {} if curve is None else _points(curve)
            for x, y, low, high in zip(*(points.get(name, ()) for name in ("x", "y", "low", "high")), strict=True):
                table.writerow([one.subject.name, figure, x, y, low, high])
    return text.getvalue()


def _points(curve: Curve) -> dict[str, Any]:
    low, high = (curve.y if one is None else one for one in (curve.low, curve.high))
    columns = {"x": curve.x, "y": curve.y, "low": low, "high": high}
    return {"seeds": curve.seeds, **{name: values.tolist() for name, values in columns.items()}}


def _says(one: PlotLine, plotted: Plot) -> str:
    """Format the legend of a line: its name, last value and interval."""
    end = end_of(one, plotted.by)
    interval = end.interval and f" ({end.interval}, the interquartile mean's 95% interval)"
    evaluated = end.evaluation and f"; evaluation {end.evaluation}"
    return f"{legend(one.subject, one.curve)}: {end.value}{interval} after {end.where}{evaluated}"


def _mention(subjects: Sequence[Subject], plotted: Plot) -> None:
    """Warn about requested runs that are not in the plot."""
    shown = {one.subject.place for one in plotted.lines}
    for one in subjects:
        failed = [str(seed.seed) for seed in one.results if seed.status == "failed"]
        if one.place not in shown:
            print(printable(f"warning: {one.name} has no figure of {plotted.metric!r}: left out"), file=sys.stderr)
        elif failed and len(failed) < len(one.results):
            print(printable(f"warning: {one.name}: seed {', '.join(failed)} failed: left out"), file=sys.stderr)


def write_plot(plotted: Plot, path: Path) -> None:
    """Write a plot to a file, as an image, a page or a table, by its suffix."""
    ending = path.suffix.lower()
    if ending == ".png":
        write_shared(path, [plot_png(plotted) or b""])
    elif ending == ".csv":
        write_shared(path, [as_csv(plotted).encode()])
    else:
        from velocirl.cli.plot.page import plot_page

        write_shared(path, [plot_page(plotted).encode()])


def require_plot_file(path: Path) -> None:
    """Raise for a file that cannot be written or drawn."""
    ending = path.suffix.lower()
    if ending not in FILES:
        raise ValueError(f"{path} must end in .png (a picture), .html (a page) or .csv (a table)")
    require_writable(path)
    if ending == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise ValueError('a .png needs matplotlib: pip install "velocirl[plots]"')


def _check(given: dict[str, Any]) -> None:
    """Raise for invalid options, before anything is read."""
    if given.get("smooth", 1) < 1:
        raise ValueError(f"--smooth must be at least 1, got {given['smooth']}")
    for path in given.get("out", ()):
        require_plot_file(path)


def _parser() -> Parser:
    parser = Parser(
        "plot [RUN ...]",
        "Plot the learning curves of runs, side by side. Of a group of seeds it is their interquartile mean, within its"
        " 95% bootstrap interval.",
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="Runs or groups: directories, names, or beginnings of names (default: the newest)",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="What is plotted: train/loss, loss, ... (default: the return, with evaluations)",
    )
    parser.add_argument(
        "--x", type=one_of(["steps", "time"]), metavar="steps|time", help="What it goes along (default: steps)"
    )
    parser.add_argument("--smooth", type=whole_number, metavar="N", help="Plot means of the last N points (default: 1)")
    parser.add_argument(
        "--group", action="store_true", help="Put runs of the same algorithm and environment together, as seeds of one"
    )
    parser.add_argument(
        "--out",
        type=Path,
        action="append",
        metavar="FILE",
        help="Write it to a file too: .png (a picture), .html (a page for a browser) or .csv (its points); may repeat",
    )
    parser.elsewhere = {f"--{one[1:]}": f"--out FILE{one}" for one in FILES}
    parser.add_argument("--json", action="store_true", help="Print its points as JSON instead")
    return parser
