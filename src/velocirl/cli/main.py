"""Entry point of the `velocirl` command."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from velocirl import DefinitionError, NumericalError, __version__
from velocirl.engine.errors import debugging, hides_a_trace
from velocirl.engine.naming import nearest
from velocirl.monitor.attention import attention
from velocirl.runs.directory import RunBusyError
from velocirl.runs.recording import RecordingError

DESCRIPTION = "Write scalars, run fleets: reinforcement learning from plain Python functions, compiled."
COMMANDS = {  # each a function of that name in a module of that name, or in a package's command.py
    "train": "train an agent",
    "resume": "continue a run as if it had never stopped",
    "monitor": "watch a run from another terminal",
    "evaluate": "play episodes with a trained agent",
    "table": "look inside a learnt table",
    "play": "watch an agent at play, or play yourself",
    "record": "film an agent at play, or write down everything that happens",
    "dataset": "record, import, check, export and draw data sets",
    "export": "write a policy as C, ONNX or JSON, to run without velocirl",
    "card": "write the model card of a run: score, safety, data, settings, versions",
    "runs": "list your runs",
    "plot": "plot the learning curves of runs, side by side",
    "envs": "list the environments that run compiled",
    "check": "list everything that is wrong with an environment",
    "compile": "compile ahead of time what training in an environment needs",
    "cache": "show or clear what has been compiled",
    "demo": "watch an agent learn to balance a pole in less than a minute",
    "doctor": "see what is installed, what works, and what to do about the rest",
    "bench": "measure speed, start-up and memory, beside its peers",
    "tune": "find the settings that train fastest on this machine without learning worse",
    "profile": "see where the time and memory of training go, and what to try next",
}
FAILED, WRONG_USE, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2, an interrupt is 130.

    If the reader of the output is gone, as with `| head`, the command ends silently with exit code 141, as cat does.
    """
    try:
        try:
            _main(arguments)
        finally:
            sys.stdout.flush()  # here, as an error during interpreter exit cannot be caught
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            _abandon(stream)
        _end(CLOSED_PIPE)


def _abandon(stream: TextIO) -> None:
    """Discard what a stream still buffers, if its reader is gone."""
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _main(arguments: Sequence[str] | None) -> None:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without µ shows a question mark instead of an error
    if arguments == ["--version"]:
        print(f"velocirl {__version__}")
        return
    if arguments[:1] in (["--help"], ["-h"]):
        print(_help())
        return
    try:
        with warnings.catch_warnings(), attention():  # commands display training themselves
            warnings.showwarning = _show_warning
            _run(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception as error:
        if (trace := _raised_by_environment(error)) is not None and not debugging():
            _end(_show_trace(trace))
        if isinstance(error, (NumericalError, RecordingError)):
            _end(_complain(error, FAILED))
        if isinstance(error, (ValueError, OSError, ImportError, DefinitionError, RunBusyError)):
            _end(_complain(error, WRONG_USE))
        raise


def _run(arguments: list[str]) -> None:
    if not arguments:
        raise ValueError(f"say what to do: velocirl {' | '.join(COMMANDS)} (velocirl --help says more)")
    name, *rest = arguments
    if name not in COMMANDS:
        raise ValueError(f"there is no command {name!r}{nearest(name, COMMANDS)}")
    module = importlib.import_module(f"velocirl.cli.{name}")
    if hasattr(module, "__path__"):  # a package
        module = importlib.import_module(f"velocirl.cli.{name}.command")
    getattr(module, name)(rest)


def _help() -> str:
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    commands = "\n".join(lines)
    return (
        f"usage: velocirl COMMAND [OPTIONS]\n\n{DESCRIPTION}\n\n{commands}\n\n"
        "velocirl COMMAND --help shows the options of a command, velocirl --version the version."
    )


def _complain(error: Exception, code: int) -> int:
    """Print an error in one line; returns the exit code."""
    from velocirl.scale.launching import let_first_speak

    let_first_speak()
    if debugging():
        raise error
    from velocirl.monitor.console import make_console
    from velocirl.monitor.words import printable

    message = printable(" ".join(str(error).split()))  # it may quote an untrusted file
    more = " (VELOCIRL_DEBUG=1 shows where)" if hides_a_trace(error) and "VELOCIRL_DEBUG" not in message else ""
    line = f"error: {message}{more}"
    make_console(stderr=True).print(line, style="red", markup=False, soft_wrap=True)
    return code


def _raised_by_environment(error: Exception) -> str | None:
    """Format an error raised by an environment that steps in Python, from its first own line; None for other errors."""
    from velocirl.vector.host.interface import RAISED_BY
    from velocirl.vector.host.worker_handle import WorkerError

    if isinstance(error, WorkerError) and error.alive:
        return f"error: {error}"
    if not any(note.startswith(RAISED_BY) for note in getattr(error, "__notes__", ())):
        return None
    from velocirl.vector.host.contract import own_traceback

    return own_traceback(error)


def _show_trace(trace: str) -> int:
    from velocirl.monitor.words import printable
    from velocirl.scale.launching import let_first_speak

    let_first_speak()
    print("\n".join(map(printable, trace.splitlines())), file=sys.stderr)
    return FAILED


def _end(code: int) -> NoReturn:
    """Exit; other ranks that would wait for this one are ended too."""
    if "mpi4py.MPI" in sys.modules:
        from velocirl.cli.ranks import end_others

        end_others(code)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from velocirl.monitor.words import printable

    text = COLOURS.sub("", " ".join(str(message).split())).removeprefix("WARN: ")  # Gymnasium's prefix, in yellow
    print(printable(f"warning: {text}"), file=sys.stderr)
