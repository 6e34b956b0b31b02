"""`velocirl compile ENV...`: compile in advance what training needs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from velocirl.algorithms import load_algorithms
from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import Parser, one_of
from velocirl.cli.settings import DEFAULT_ALGORITHM
from velocirl.engine.compiler.caching.cache import entries
from velocirl.monitor.console import make_console
from velocirl.training.persistence import ALGORITHMS, algorithm_from

ALL = "all"


def compile(arguments: Sequence[str]) -> None:  # noqa: A001 - commands are functions of their names
    """Compile what agents need to train and act in environments."""
    load_algorithms()
    parser = Parser(
        "compile ENV...",
        "Compile ahead of time what training in these environments needs, with the settings of their presets. What is"
        " compiled is kept (velocirl cache), so that training then begins at once.",
    )
    parser.add_argument(
        "environments",
        nargs="+",
        metavar="ENV",
        help="Environment: an id (see velocirl envs), gym:ID, or a Python file: my_env.py[:ID]",
    )
    parser.add_argument("--algorithm", nargs="+", type=one_of([*sorted(ALGORITHMS), ALL]), metavar="NAME",
                        help=f"Algorithms to compile for, or {ALL} (default: {DEFAULT_ALGORITHM})")  # fmt: skip
    parser.add_argument("--device", type=one_of(["auto", "cpu", "cuda"]), metavar="auto|cpu|cuda",
                        help="Device that training will use (default: auto)")  # fmt: skip
    given = parser.parse(arguments)
    asked = given.get("algorithm", [DEFAULT_ALGORITHM])
    names = sorted(ALGORITHMS) if ALL in asked else list(dict.fromkeys(asked))
    console = make_console()
    for chosen in [choose(name) for name in given["environments"]]:
        for algorithm in names:
            began, before = time.perf_counter(), {entry.path for entry in entries()}
            with console.status(f"{chosen.id}: {algorithm}"):
                kind = algorithm_from(algorithm)
                device = {"device": given["device"]} if "device" in given and hasattr(kind.Config, "device") else {}
                try:
                    agent = kind(chosen.environment, **device)
                except ValueError as error:
                    if ALL not in asked:
                        raise
                    console.print(f"{chosen.id}: {algorithm} does not fit: {error}", markup=False, soft_wrap=True)
                    continue
                agent.prepare()
                space = agent.source.observation_space
                space.seed(0)
                agent.predict(space.sample())
            made, spent = {entry.path for entry in entries()} - before, time.perf_counter() - began
            what = f"{len(made)} files compiled" if made else "nothing left to compile"
            console.print(f"{chosen.id}: {algorithm}, {what}, {spent:.1f} s", markup=False, soft_wrap=True)
