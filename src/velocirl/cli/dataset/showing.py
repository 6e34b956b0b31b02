"""`velocirl dataset info`, `validate`, `export` and `plot`: commands for an existing dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.bench.files import require_writable
from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.cli.dataset.progress import quietly, showing_progress
from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import Parser
from velocirl.datasets.minari.exporting import export_minari
from velocirl.datasets.picture import dataset_png
from velocirl.datasets.plausibility import doubts
from velocirl.datasets.summary import summary
from velocirl.engine import registry
from velocirl.engine.disk.writing import write_shared
from velocirl.engine.environment import Environment
from velocirl.monitor.words import plural
from velocirl.vector.making import GYMNASIUM

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 64  # rows of the table of distributions


def info(arguments: Sequence[str]) -> None:
    """Print the contents of a dataset."""
    parser = _parser("info", "Say what is in a data set: episodes, returns, costs, and how each number is spread.")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    given = parser.parse(arguments)
    found = summary(Dataset.load(given["data"]))
    if "json" in given:
        print(json.dumps(found, allow_nan=False))
        return
    from velocirl.monitor.console import make_console

    _show(make_console(), given["data"], found)


def validate(arguments: Sequence[str]) -> None:
    """Validate a dataset; impossible values are listed, and raise an error at the end."""
    parser = _parser("validate", "Check every byte and value of a data set, also against its plant's ranges and clock.")
    parser.add_argument(
        "--env", metavar="ENV", help="Environment to compare with (default: the data's): an id, or plant.py[:ID]"
    )
    given = parser.parse(arguments)
    path, found = given["data"], Dataset.load(given["data"])
    from velocirl.monitor.console import make_console

    console, named = make_console(), found.info.environment
    if "env" in given:
        chosen = choose(given["env"])
        if named is not None and chosen.id != named:
            raise ValueError(f"{path} is of {named}, and --env names {chosen.id}: leave it out")
        environment = chosen.environment
    else:
        environment = next((registry.find(one) for one in registry.list_envs() if one == named), None)
        if named is not None and environment is None and not named.startswith(GYMNASIUM):
            quietly(console, f"note: {named} is not known here; compare with its file by --env plant.py:{named}")
    told = doubts(found, environment if isinstance(environment, Environment) else None)
    for one in told:
        quietly(console, f"{'impossible' if one.impossible else 'warning'}: {one.words}")
    if wrong := sum(one.impossible for one in told):
        raise DatasetError(f"{path} has what cannot be: see the {wrong} line{'s' if wrong > 1 else ''} above")
    size = path.stat().st_size / 1e6
    words = f"{plural(len(found), 'transition')} in {plural(found.episodes, 'episode')}, {size:,.1f} MB"
    quietly(console, f"{path} is sound: {words}, sha256 {found.checksum}")


def export(arguments: Sequence[str]) -> None:
    """Write a dataset in Minari's layout."""
    parser = _parser("export", "Write a data set as a directory in Minari's layout, which Minari and d3rlpy read.")
    parser.add_argument("--out", type=Path, metavar="DIRECTORY", help="The directory to write, such as reactor-v0")
    parser.add_argument(
        "--id", metavar="ID", help="Minari's name for it, such as reactor/medium-v0 (default: the directory's name)"
    )
    given = parser.parse(arguments)
    if "out" not in given:
        raise ValueError("say where it is to be written: --out reactor-v0")
    from velocirl.monitor.console import make_console

    console, found = make_console(), Dataset.load(given["data"])
    with showing_progress(console) as told:
        path = export_minari(found, given["out"], given.get("id"), told("exporting"))
    quietly(console, f"{path}: {plural(found.episodes, 'episode')} in Minari's layout")


def plot(arguments: Sequence[str]) -> None:
    """Draw a dataset."""
    parser = _parser("plot", "Draw how returns, lengths, costs, signals and actuators of a data set are spread.")
    parser.add_argument("--out", type=Path, metavar="PNG", help="The picture to write (default: beside the data, .png)")
    given = parser.parse(arguments)
    path = given.get("out", given["data"].with_suffix(".png"))
    if path.suffix.lower() != ".png":
        raise ValueError(f"{path} must end in .png")
    require_writable(path)
    write_shared(path, [dataset_png(Dataset.load(given["data"]))])
    from velocirl.monitor.console import make_console

    quietly(make_console(), str(path))


def _parser(name: str, description: str) -> Parser:
    parser = Parser(f"dataset {name} DATA", description)
    parser.add_argument("data", metavar="DATA", type=Path, help="The file of a data set")
    return parser


def _show(console: Console, path: Path, found: Mapping[str, Any]) -> None:
    from velocirl.bench.reports.terminal import new_table

    facts = {
        "environment": found["environment"] or "unknown",
        "level": found["level"],
        "policy": found["policy"],
        "seed": found["seed"],
        "transitions": f"{found['transitions']:,} ({found['bytes'] / 1e6:,.1f} MB)",
        "episodes": f"{found['episodes']:,}: {found['terminated']:,} terminated, {found['truncated']:,} cut off",
        "length": _range(found.get("length")),
        "return": _range(found.get("return")),
        "score": None if "score" not in found else f"{found['score']:.1f} (0 random, 100 expert)",
        "scenario": found["scenario"],
        "time step": None if found["time_step"] is None else f"{found['time_step']:g} s",
        "references": ", ".join(_reference(name, found) for name in found["references"]) or None,
        "cost": ", ".join(f"{name} {value:,.4g}" for name, value in found.get("cost", {}).items()) or None,
        "checksum": found["checksum"],
    }
    quietly(console, str(path), style="bold")
    for name, value in facts.items():
        if value is not None:
            quietly(console, f"  {name:<13}{value}")
    rows = [("", one) for one in found["observations"]] + [("actuator", one) for one in found["actions"]]
    table = new_table(console)
    for heading in ("", "unit", "mean", "std", "least", "greatest", "at limits"):
        table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
    for kind, one in rows[:MOST_ROWS]:
        at = "" if one["at_limits"] is None else f"{one['at_limits']:.1%}"
        numbers = [f"{one[name]:,.5g}" for name in ("mean", "std", "least", "greatest")]
        table.add_row(f"{one['name']} ({kind})" if kind else one["name"], one["unit"], *numbers, at)
    if rows:
        console.print(table)


def _reference(name: str, found: Mapping[str, Any]) -> str:
    """Format a reference return, with its interval and number of episodes if they are known."""
    words = f"{name} {found['references'][name]:,.6g}"
    if name in found["reference_intervals"]:
        low, high = found["reference_intervals"][name]
        words += f" ({low:,.6g} to {high:,.6g} in {found['reference_episodes'][name]:,} episodes)"
    return words


def _range(found: Mapping[str, float] | None) -> str | None:
    if found is None:
        return None
    spread = f" ± {found['std']:,.4g}" if "std" in found else ""
    return f"{found['mean']:,.6g}{spread}, from {found['least']:,.6g} to {found['greatest']:,.6g}"
