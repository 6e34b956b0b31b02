"""`velocirl dataset`: dispatch to its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from velocirl.cli.dataset.create import create
from velocirl.cli.dataset.importing import import_
from velocirl.cli.dataset.showing import export, info, plot, validate
from velocirl.engine.naming import nearest

COMMANDS = {
    "create": (create, "record a data set: by level, from a run or a model, or from a controller"),
    "import": (import_, "take over a directory in Minari's layout, or a historian's CSV or Parquet"),
    "info": (info, "what is in it: episodes, returns, costs, how each number is spread"),
    "validate": (validate, "check every byte and every value of it"),
    "export": (export, "write it in Minari's layout, which Minari and d3rlpy read"),
    "plot": (plot, "draw how returns, signals and actuators are spread"),
}


def dataset(arguments: Sequence[str]) -> None:
    """Run one of the dataset commands."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_help())
        sys.exit(0)  # as parsers do after printing their help
    if not arguments:
        raise ValueError(f"say what to do: velocirl dataset {' | '.join(COMMANDS)} (velocirl dataset --help says more)")
    name, *rest = arguments
    if name not in COMMANDS:
        raise ValueError(f"there is no command 'dataset {name}'{nearest(name, list(COMMANDS))}")
    COMMANDS[name][0](rest)


def _help() -> str:
    commands = "\n".join(f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: velocirl dataset COMMAND [OPTIONS]\n\nRecorded experience: made, taken over, looked at, and handed on."
        f"\n\n{commands}\n\nvelocirl dataset COMMAND --help shows the options of a command."
    )
