"""`velocirl dataset create`: record a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.file import SUFFIX, require_place
from velocirl.buffers.data.info import LEVELS
from velocirl.cli.dataset.progress import quietly, showing_progress
from velocirl.cli.named.controllers import add_controller
from velocirl.cli.named.environment_files import choose
from velocirl.cli.named.models import add_model, add_stochastic
from velocirl.cli.named.policies import find_policy
from velocirl.cli.parsing import Parser, number, one_of, whole_number
from velocirl.datasets.levels import create_dataset
from velocirl.datasets.record import record_dataset
from velocirl.monitor.words import plural

STEPS = 1_000_000
FOR_LEVELS = ("algorithm", "training_steps", "medium")
FOR_POLICIES = ("controller", "best", "latest", "env", "stochastic", "trust")


def create(arguments: Sequence[str]) -> None:
    """Record a dataset, and print its summary."""
    given = _parser().parse(arguments)
    if "out" not in given:
        raise ValueError(f"say where it is to be written: --out data{SUFFIX}")
    path: Path = given["out"]
    require_place(path, overwrite="overwrite" in given)
    for name in FOR_POLICIES if "level" in given else FOR_LEVELS:
        if name in given:
            what = "a run, a model or a controller" if "level" in given else "--level"
            raise ValueError(f"--{name.replace('_', '-')} is for {what}")
    from velocirl.monitor.console import make_console

    console = make_console()
    with showing_progress(console) as told:
        options = {name: given[name] for name in ("noise", "seed", "scenario", "expert") if name in given}
        options |= {"overwrite": "overwrite" in given}
        options |= {"steps": given.get("steps", STEPS), "path": path, "progress": told("recording")}
        found = _of_level(given, told, options) if "level" in given else _of_policy(given, options)
    quietly(console, f"{path}: {say(found)}")


def say(found: Dataset) -> str:
    """Format a dataset in one line."""
    returns, info = found.returns(), found.info
    words = [f"{plural(len(found), 'transition')} in {plural(found.episodes, 'episode')}"]
    if len(returns):
        words.append(f"return {returns.mean():,.6g}")
    if {"random", "expert"} <= set(info.references) and len(returns):
        words.append(f"score {info.normalised(returns.mean()):.1f}")
    words.append(f"{sum(one.nbytes for one in found.columns.values()) / 1e6:,.1f} MB")
    return ", ".join(words)


def add_overwrite(parser: Parser) -> None:
    """Add the option that allows replacing a file."""
    parser.add_argument("--overwrite", action="store_true", help="Replace the data set where there is one already")


def _of_level(given: dict[str, Any], told: Any, options: dict[str, Any]) -> Dataset:
    if "model" not in given:
        raise ValueError(f"say in which environment: velocirl dataset create ENV --level {given['level']} --out FILE")
    chosen = choose(given["model"])
    options |= {name: given[name] for name in FOR_LEVELS if name in given}
    return create_dataset(given["level"], chosen.environment, watch_training=told("training"), **options)


def _of_policy(given: dict[str, Any], options: dict[str, Any]) -> Dataset:
    policy, environment, _ = find_policy(given)
    options |= {"deterministic": "stochastic" not in given}
    return record_dataset(policy, environment, **options)


def _parser() -> Parser:
    parser = Parser(
        "dataset create ENV|RUN|FILE --out DATA",
        "Record a data set: in an environment, by --level or with a --controller; or from the agent of a run or file.",
    )
    add_model(parser)
    add_controller(parser)
    add_stochastic(parser)
    parser.add_argument("--out", type=Path, metavar="DATA", help=f"The file to write, such as reactor{SUFFIX}")
    add_overwrite(parser)
    parser.add_argument(
        "--level",
        type=one_of(list(LEVELS)),
        metavar="|".join(LEVELS),
        help="random: uniform actions; operator: the plant's own controller; expert: the best of a training; medium:"
        " the first of it that reaches half the expert's score; mixed: random, medium and expert in equal parts;"
        " replay: all that the agent was while it learnt, in equal parts",
    )
    parser.add_argument("--steps", type=whole_number, metavar="N", help=f"Transitions to record (default: {STEPS:,})")
    parser.add_argument("--seed", type=whole_number, metavar="N", help="Seed of the recording (default: 0)")
    parser.add_argument(
        "--noise",
        type=number,
        metavar="SHARE",
        help="Add noise to actions: to numbers, Gaussian of this share of half their range; choices are replaced with"
        " this probability (default: 0)",
    )
    parser.add_argument(
        "--scenario", metavar="NAME", help="Train, measure and record in one of the scenarios of the environment"
    )
    parser.add_argument(
        "--expert",
        metavar="RUN|FILE",
        help="Who has a score of 100; of a level, instead of training one",
    )
    parser.add_argument("--medium", metavar="RUN|FILE", help="The medium policy of a level, instead of training one")
    parser.add_argument(
        "--algorithm", metavar="NAME", help="What is trained for a level (default: the first that has a preset, or ppo)"
    )
    parser.add_argument(
        "--training-steps", type=whole_number, metavar="N", help="For how long it is trained (default: the preset's)"
    )
    return parser
