"""Options of `velocirl bench`, and the command line that reproduces a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from velocirl.bench.registry import CATEGORIES
from velocirl.bench.regression import Thresholds
from velocirl.cli.parsing import Parser, number


def bench_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        "bench [WHAT ...]",
        f"Measure speed, start-up and memory. WHAT is a category ({', '.join(CATEGORIES)}), a benchmark, or a Python"
        " file of your own; without it, the standard set is measured. `velocirl bench history` shows what was measured"
        " before.",
    )
    parser.add_argument("words", nargs="*", metavar="WHAT", help="Benchmarks to run; --list shows them")
    parser.add_argument("--list", action="store_true", help="List the benchmarks without running any")
    parser.add_argument("--all", action="store_true", help="Run every benchmark, not only the standard set")
    parser.add_argument("--peers", action="store_true", help="Measure the installed peers in the same run")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="Take fewer and shorter samples, for a first impression; of the standard set what fits into a minute",
    )
    parser.add_argument("--save", metavar="NAME", help="Save the run as a baseline: a name, or a path to a .json file")
    parser.add_argument(
        "--compare", metavar="NAME", help="Compare with a baseline and report what became slower or larger"
    )
    parser.add_argument(
        "--fail-on-regression", action="store_true", help="Exit with status 1 if --compare finds a regression"
    )
    defaults = Thresholds()
    for name, default, text in (
        ("warn", defaults.warn, "Let --compare warn when speed falls by this much"),
        ("fail", defaults.fail, "Let --compare report a regression when speed falls by this much"),
        ("memory", defaults.memory, "Let --compare report a regression when memory grows by this much"),
    ):
        parser.add_argument(f"--{name}-at", type=number, metavar="PERCENT", help=f"{text} (default: {100 * default:g})")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="Write all results to this file, including raw samples"
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="Insert the tables into this file, between bench:begin and bench:end",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="Write a report with plots to this HTML file")
    parser.add_argument(
        "--speeds",
        type=Path,
        metavar="FILE",
        help="Insert a short table of speeds into this file, between speeds:begin and speeds:end; on a machine with a"
        " GPU that of the GPU, between gpu-speeds:begin and gpu-speeds:end",
    )
    parser.add_argument(
        "--from",
        type=Path,
        metavar="FILE",
        help="Measure nothing: write --markdown, --speeds and --html from results that --json or --save wrote to this"
        " file",
    )
    parser.add_argument("--no-history", action="store_true", help="Do not add the run to the history")
    return parser


def spelled(given: dict[str, Any]) -> str:
    """Return the command line that was given."""
    words = ["velocirl", "bench", *given.get("words", ())]
    for name, value in given.items():
        if name != "words":
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
