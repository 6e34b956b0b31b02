"""`velocirl dataset import`: convert foreign recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from velocirl.buffers.data.file import SUFFIX, require_place
from velocirl.cli.dataset.create import add_overwrite, say
from velocirl.cli.dataset.progress import quietly, showing_progress
from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import Parser
from velocirl.datasets.historian.importing import import_historian
from velocirl.datasets.historian.tables import ENDINGS
from velocirl.datasets.minari.importing import import_minari


def import_(arguments: Sequence[str]) -> None:
    """Import a directory in Minari's layout, or a table of a historian."""
    parser = Parser(
        "dataset import SOURCE --out DATA",
        "Take over a data set: a directory in Minari's layout, or a historian's table by a mapping of its columns.",
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="A directory, or a file in .csv or .parquet")
    parser.add_argument("--out", type=Path, metavar="DATA", help=f"The file to write, such as plant{SUFFIX}")
    parser.add_argument(
        "--mapping",
        type=Path,
        metavar="JSON",
        help='Which columns of a table are what: {"time": "when", "observations": [{"column": "TI101", "name":'
        ' "temperature", "unit": "degC"}], "actions": [...], "reward": "profit", "environment": "ChemicalReactor-v0"};'
        ' and where episodes begin: "gap" (seconds), "episode" (a column), "terminated" (a column), "longest" (steps);'
        ' "duplicates": refuse, first or last; "missing": refuse, cut, hold or interpolate (up to "max_gap" seconds);'
        ' "outside" (of a range): refuse, missing or keep; "alignment": taken or led; "time_unit": s, ms, min, h, d or'
        ' excel; "time_format": %%d.%%m.%%Y %%H:%%M; "separator" and "decimal" of a CSV file',
    )
    parser.add_argument(
        "--env", metavar="ENV", help="Environment of the columns, instead of the mapping's: an id, or plant.py[:ID]"
    )
    add_overwrite(parser)
    given = parser.parse(arguments)
    if "out" not in given:
        raise ValueError(f"say where it is to be written: --out data{SUFFIX}")
    source, path = given["source"], given["out"]
    require_place(path, overwrite="overwrite" in given)
    table = source.suffix.lower() in ENDINGS
    if table and "mapping" not in given:
        raise ValueError(f"say which columns of {source} are what: --mapping columns.json (--help shows one)")
    if not table and "mapping" in given:
        raise ValueError(f"--mapping is for tables, which end in {' or '.join(ENDINGS)}")
    if not table and "env" in given:
        raise ValueError(f"--env is for tables, which end in {' or '.join(ENDINGS)}")
    env = choose(given["env"]).environment if "env" in given else None
    from velocirl.monitor.console import make_console

    console = make_console()
    if table:
        found = import_historian(source, given["mapping"], path, env=env, overwrite="overwrite" in given)
        for words in found.warnings:
            quietly(console, f"warning: {words}")
        quietly(console, f"{path}: {found}")
    else:
        with showing_progress(console) as told:
            taken = import_minari(source, path, told("importing"), overwrite="overwrite" in given)
        quietly(console, f"{path}: {say(taken)}")
