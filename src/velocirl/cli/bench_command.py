"""The options of `velocirl bench`, and how a run of it is spelled for a reader who wants to see the same."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from velocirl.bench.registry import CATEGORIES
from velocirl.bench.regression import Thresholds
from velocirl.cli.parsing import Parser, number


def bench_parser() -> Parser:
    """The parser of its command line."""
    parser = Parser(
        "bench [WHAT ...]",
        f"Measure speed, start-up and memory. WHAT is a category ({', '.join(CATEGORIES)}), a benchmark, or a Python"
        " file of your own; without it, the standard set is measured. `velocirl bench history` shows what was measured"
        " before.",
    )
    parser.add_argument("words", nargs="*", metavar="WHAT", help="what to measure (--list shows what there is)")
    parser.add_argument("--list", action="store_true", help="say which benchmarks there are, and measure nothing")
    parser.add_argument("--all", action="store_true", help="measure everything, not only the standard set")
    parser.add_argument("--peers", action="store_true", help="beside the peers that are installed, in the same run")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: a glance, not a result")
    parser.add_argument("--save", metavar="NAME", help="keep the run as a baseline: a name, or a path to a .json file")
    parser.add_argument(
        "--compare", metavar="NAME", help="compare with a baseline, and say what became slower or larger"
    )
    parser.add_argument("--fail-on-regression", action="store_true", help="exit with 1 where something fails --compare")
    defaults = Thresholds()
    for name, default, text in (
        ("warn", defaults.warn, "a loss of speed from which --compare warns"),
        ("fail", defaults.fail, "a loss of speed from which it fails"),
        ("memory", defaults.memory, "a growth of memory from which it fails"),
    ):
        parser.add_argument(f"--{name}-at", type=number, metavar="PERCENT", help=f"{text} ({100 * default:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file, raw samples included")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="put the tables into this file, between bench:begin and bench:end"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots, in one file")
    parser.add_argument("--no-history", action="store_true", help="do not add the run to the history")
    return parser


def spelled(given: dict[str, Any]) -> str:
    """The command line that was given."""
    words = ["velocirl", "bench", *given.get("words", ())]
    for name, value in given.items():
        if name != "words":
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
