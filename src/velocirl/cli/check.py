"""`velocirl check ENV...`: lists all problems of an environment at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import Parser
from velocirl.engine.errors import DefinitionError
from velocirl.vector.checking import check_env

FAILED = 1  # exit code


def check(arguments: Sequence[str]) -> None:
    """Check environments with random actions: print what was checked or all problems, which end with exit code 1."""
    parser = Parser(
        "check ENV...",
        "Run environments with random actions and list everything that is wrong with them, each problem with its line:"
        " what functions return, spaces, seeds, episodes that never end. Exit code 1 where something is wrong.",
    )
    parser.add_argument(
        "environments",
        nargs="+",
        metavar="ENV",
        help="Environment: an id (see velocirl envs), gym:ID, or a Python file: my_env.py[:ID]",
    )
    failed = False
    for chosen in [choose(name) for name in parser.parse(arguments)["environments"]]:
        try:
            check_env(chosen.environment)
        except DefinitionError as error:
            failed = True
            print(error, file=sys.stderr)
    if failed:
        sys.exit(FAILED)
