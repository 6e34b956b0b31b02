"""`velocirl tune`: finds the settings that train fastest on this machine without learning worse."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.bench.files import require_writable
from velocirl.bench.machine.facts import this_machine
from velocirl.bench.reports.terminal import show_machine
from velocirl.bench.tuning.document import document_of
from velocirl.bench.tuning.tuner import Plan, Tuner
from velocirl.cli.named.environment_files import Chosen, choose
from velocirl.cli.parsing import Parser, number, whole_number
from velocirl.cli.ranks import several_ranks
from velocirl.cli.settings import DEFAULT_ALGORITHM, add_settings
from velocirl.cli.train.command import build
from velocirl.cli.tune.report import TuneProgress, config_text, show_ending, show_hardware, show_table
from velocirl.engine.disk.writing import strict_json, write_shared
from velocirl.monitor.console import make_console
from velocirl.training.agent import Agent
from velocirl.training.persistence import ALGORITHMS, algorithm_from
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class Request:
    """A tuning request."""

    chosen: Chosen
    algorithm: type[Agent]
    plan: Plan
    output: Path
    json: Path | None
    everything: bool


def tune(arguments: Sequence[str]) -> None:
    """Measure this machine, choose settings, show why, and write them to a file for `velocirl train --config`."""
    request = _read(arguments)
    console, machine = make_console(), this_machine()
    show_machine(console, machine)
    plan, name = request.plan, request.algorithm.name
    with TuneProgress(console) as progress:
        tuner = Tuner(lambda values: build(request.algorithm, request.chosen, dict(values)), plan, progress)
        try:
            choice = tuner.run()
        except KeyboardInterrupt:
            progress.close()
            tuner.catch_up()
            so_far = tuner.choice() if tuner.rows else None
            if so_far is not None:
                show_table(console, tuner, so_far, everything=request.everything, partial=True)
            console.print("interrupted: what is above is partial, and nothing was chosen", style="yellow")
            _write_json(request, document_of(tuner, so_far, request.chosen.spelled, name, machine, partial=True))
            raise
    show_table(console, tuner, choice, everything=request.everything)
    show_hardware(console, tuner, machine)
    agent = tuner.chosen_agent(choice)
    text = config_text(tuner, choice, agent, request.chosen.spelled, machine, request.output.name)
    write_shared(request.output, [text.encode()])
    _write_json(request, document_of(tuner, choice, request.chosen.spelled, name, machine, partial=False))
    show_ending(console, tuner, choice, request.output)


def _write_json(request: Request, document: dict[str, Any]) -> None:
    if request.json is not None:
        write_shared(request.json, [strict_json(document, indent=2).encode()])


def _read(arguments: Sequence[str]) -> Request:
    """Read a request from the command line; a mistake is a ValueError of one line, before anything is measured."""
    first = Parser("tune", add_help=False)
    first.add_argument("--algorithm", default=DEFAULT_ALGORITHM)
    early, _ = first.parse_known_args(arguments)
    algorithm = algorithm_from(early.algorithm)
    given = _parser(algorithm).parse(arguments)
    if given.get("environment") is None:
        raise ValueError("say which environment is to be learnt: velocirl tune CartPole-v1 (velocirl envs lists them)")
    names = {field.name for field in dataclasses.fields(algorithm.Config)}
    values = {name: value for name, value in given.items() if name in names}
    _refuse(values, algorithm)
    for name, least in (("steps", 1), ("seeds", 2)):
        require(given.get(name, least) >= least, name, given.get(name), f"at least {least}")
    budget, tolerance = given.get("budget", Plan.budget), given.get("tolerance", Plan.tolerance)
    require(0 < budget < float("inf"), "budget", budget, "a number of seconds above 0")
    require(0 <= tolerance < 1, "tolerance", tolerance, "from 0 to below 1")
    chosen = choose(given["environment"])
    steps = given.get("steps") or build(algorithm, chosen, dict(values)).preset().get("total_steps")
    output = given.get("output", Path(f"{re.sub(r'[^A-Za-z0-9._-]+', '-', chosen.id)}-tuned.toml"))
    if output.exists() and not output.is_dir() and "force" not in given:
        raise ValueError(f"{output} is there already: --force replaces it, --output FILE writes another one")
    for path in filter(None, (output, given.get("json"))):
        require_writable(path)
    plan = Plan(values, steps, budget, given.get("seeds"), tolerance)
    return Request(chosen, algorithm, plan, output, given.get("json"), "all" in given)


def _refuse(values: dict[str, Any], algorithm: type[Agent]) -> None:
    """Raise for settings that do not allow repeated training."""
    if several_ranks(values, algorithm):
        raise ValueError("tune trains in one process: leave out --runtime, mpirun and torchrun")
    if values.get("buffer_file") is not None:
        raise ValueError("tune trains many agents, which would all write to --buffer-file: leave it out")


def _parser(algorithm: type[Agent]) -> Parser:
    parser = Parser(
        "tune ENV",
        "Measure how fast this machine trains with other numbers of copies, rollouts, minibatches, threads and devices,"
        " in other precisions, compiled, with accumulated gradients, other buffers and overlapped steps and updates;"
        " train the fastest ones beside the environment's preset, and choose what reaches the preset's return soonest."
        " Settings that are given as options are not tuned; neither are the learning rate and the number of steps.",
    )
    parser.add_argument(
        "environment",
        nargs="?",
        metavar="ENV",
        help="Environment: an id (see velocirl envs), gym:ID, or a Python file: my_env.py[:ID]",
    )
    parser.add_argument(
        "--algorithm", metavar="NAME", help=f"Algorithm: {', '.join(sorted(ALGORITHMS))} (default: {DEFAULT_ALGORITHM})"
    )
    parser.add_argument(
        "--budget", type=number, metavar="SECONDS", help=f"Seconds to measure for (default: {Plan.budget:g})"
    )
    parser.add_argument(
        "--steps", type=whole_number, metavar="N", help="Steps of each training (default: the preset's)"
    )
    parser.add_argument(
        "--seeds", type=whole_number, metavar="N", help="Trainings per candidate (default: 3 to 10, as time allows)"
    )
    parser.add_argument(
        "--tolerance", type=number, metavar="SHARE",
        help=f"How much worse than the preset a candidate may learn (default: {Plan.tolerance:g})",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="TOML", help="File to write the settings to (default: ENV-tuned.toml)"
    )
    parser.add_argument("--force", action="store_true", help="Overwrite that file if it exists")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="Write all results to this file, including raw samples"
    )
    parser.add_argument("--all", action="store_true", help="Also show candidates that were only looked at briefly")
    add_settings(parser.add_argument_group(f"settings of {algorithm.name}, which are then not tuned"), algorithm.Config)
    return parser
