"""The command `velocirl`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import tyro

from velocirl import DefinitionError, __version__
from velocirl.cli.bench import bench
from velocirl.cli.console import make_console
from velocirl.cli.demo import demo
from velocirl.cli.envs import envs
from velocirl.engine.errors import debugging

DESCRIPTION = (
    "Write scalars, run fleets: reinforcement learning from plain Python functions, compiled."
    " (velocirl --version tells the version.)"
)
WRONG_USE, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; what a person did wrong is one line on stderr and exit code 2, an interrupt is 130."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) == ["--version"]:
        print(f"velocirl {__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without µ shows a question mark, not an error
    app = tyro.extras.SubcommandApp()
    for command in (envs, demo, bench):
        app.command(command)
    try:
        app.cli(prog="velocirl", description=DESCRIPTION, args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, DefinitionError) as error:
        if debugging():
            raise
        message = " ".join(str(error).split())
        line = f"error: {message} (VELOCIRL_DEBUG=1 shows where)"
        make_console(stderr=True).print(line, style="red", markup=False, soft_wrap=True)
        sys.exit(WRONG_USE)
