"""`velocirl profile train`: time and memory of a training, with advice on what to try next."""

from __future__ import annotations

import difflib
import re
import shlex
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from velocirl.bench.profiling.showing import Screen
from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import Parser
from velocirl.cli.profile.session import SECONDS, ProfileSession
from velocirl.cli.ranks import several_ranks
from velocirl.cli.settings import Request, read_request
from velocirl.cli.train.command import build
from velocirl.engine.naming import nearest
from velocirl.monitor.console import make_console

WHAT = ("train",)
OPTIONS = ("--output", "--lines", "--no-flame")


def profile(arguments: Sequence[str]) -> None:
    """Profile the time and memory of a command."""
    if not arguments:
        raise ValueError("say what to profile: velocirl profile train CartPole-v1 (velocirl profile --help says more)")
    what, *rest = arguments
    if what not in (*WHAT, "--help", "-h"):
        raise ValueError(f"there is no profile of {what!r}{nearest(what, WHAT)}")
    own, others = _parser().parse_known_args(rest if what in WHAT else arguments)  # may print the help and exit
    request, given = _read(others), vars(own)
    began = time.perf_counter()
    chosen = choose(request.environment, named_by=request.named_by, trust=request.trust)
    agent = build(request.algorithm, chosen, request.values)
    built = time.perf_counter() - began
    directory, new = claim(given.get("output"), chosen.id)
    session = ProfileSession(
        request,
        chosen,
        agent,
        directory,
        Screen(None if request.json or request.quiet else make_console()),
        command=shlex.join(["velocirl", "profile", *arguments]),
        flame="no_flame" not in given,
        lines="lines" in given,
    )
    try:
        session.run(built)
    finally:
        if new and not any(directory.iterdir()):  # it ended before there were results
            directory.rmdir()


def claim(wanted: Path | None, environment: str) -> tuple[Path, bool]:
    """Create a directory for the files; returns it and whether it is new. A named one must be empty."""
    if wanted is not None:
        path = wanted.expanduser()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} is not an empty directory: give --output a new one")
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        return path, new
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", environment).strip(".-")
    name = f"profile-{words}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        path = Path(name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path, True


def _parser() -> Parser:
    parser = Parser(
        "profile train ENV",
        f"Train for about {SECONDS:.0f} seconds, or for --total-steps, and say where time and memory go: the tree of"
        " the training loop, a flame graph of its Python, memory over time, and what to try next. Takes all options of"
        " velocirl train as well (velocirl train --help). With --run-dir the run is kept, and training goes on to its"
        " end.",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="Directory for the files (default: a new one, profile-ENV-TIME)"
    )
    parser.add_argument(
        "--lines", action="store_true", help="Also time the lines of the environment, run as plain Python"
    )
    parser.add_argument("--no-flame", action="store_true", help="Do not draw a flame graph")
    return parser


def _read(arguments: list[str]) -> Request:
    """Parse the options of `velocirl train`; a misspelled option may also be one of this command."""
    try:
        request = read_request(arguments)
    except ValueError as error:
        found = re.match(r"there is no option (--[\w-]+): ", str(error))
        near = difflib.get_close_matches(found[1], OPTIONS, n=1, cutoff=0.75) if found else []
        if found and near:
            raise ValueError(f"there is no option {found[1]}: did you mean {near[0]}?") from None
        raise
    if request.seeds is not None:
        raise ValueError("a profile is of one agent: leave out --seeds")
    if several_ranks(request.values, request.algorithm):
        raise ValueError("a profile is of one process: leave out mpirun, torchrun and MPI, and take another --runtime")
    if request.exist == "resume":
        raise ValueError("a profile is of a new run: leave out --exist resume")
    if request.checkpoint_every is not None and request.run_dir is None:
        raise ValueError("--checkpoint-every needs a run to save in: give --run-dir too")
    return request
