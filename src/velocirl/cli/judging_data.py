"""`velocirl evaluate --data`: off-policy evaluation of a policy on recorded data, without a step of the plant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from velocirl.cli.named.policies import find_policy
from velocirl.cli.parsing import Parser, whole_number
from velocirl.judging.fitted import FITS, UPDATES
from velocirl.judging.report import judge_offline

FOR_DATA = ("horizon", "fits", "updates")
NOT_FOR_DATA = ("episodes", "scenario", "render", "video", "safety")


def add_data(parser: Parser) -> None:
    """Add the options of an evaluation on recorded data."""
    group = parser.add_argument_group("recorded data")
    group.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="Judge by this data set alone: verdict on emergency stops, estimated return and cost, unusual actions",
    )
    group.add_argument(
        "--horizon", type=whole_number, metavar="N", help="Number of steps that count (default: of the longest episode)"
    )
    group.add_argument(
        "--fits",
        type=whole_number,
        metavar="N",
        help=f"Number of resamples of the data to learn from (default: {FITS})",
    )
    group.add_argument(
        "--updates", type=whole_number, metavar="N", help=f"Number of updates of each (default: {UPDATES})"
    )


def judge_data(given: Mapping[str, Any]) -> None:
    """Evaluate the model of a run or a file on recorded data; prints the arguments for and against deploying it."""
    for name in NOT_FOR_DATA:
        if name in given:
            raise ValueError(f"--{name} does not go with --data: nothing is played")
    policy, _, source = find_policy(given, by_data=True)
    options = {name: given[name] for name in FOR_DATA if name in given}
    from rich.status import Status

    from velocirl.monitor.console import make_console

    console = make_console(stderr="json" in given)
    with Status("judging", console=console) as status:

        def progress(done: int, total: int) -> None:
            status.update(f"judging: fit {done + 1} of {total}")

        deterministic = "stochastic" not in given
        found = judge_offline(policy, given["data"], seed=given.get("seed", 0), deterministic=deterministic,
                              progress=progress, **options)  # fmt: skip
    if "json" in given:
        print(json.dumps({"model": source, "data": str(given["data"]), **found.as_dict()}, allow_nan=False))
        return
    console.print(str(found), markup=False, highlight=False, soft_wrap=True)
