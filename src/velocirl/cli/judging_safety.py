"""`velocirl evaluate --safety`: safety of a policy compared with random actions and controllers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.cli.named.policies import find_policy
from velocirl.cli.parsing import Parser, whole_number
from velocirl.controllers import MPPI
from velocirl.training.source import Given
from velocirl.trajectories.policies import Policy
from velocirl.trajectories.report import report_path
from velocirl.trajectories.safety import EPISODES, SEEDS, SafetyEvaluation, evaluate_safety

if TYPE_CHECKING:
    from rich.console import Console

FOR_SAFETY = ("seeds", "mpc", "html")
NOT_FOR_SAFETY = ("render", "video")


def add_safety(parser: Parser) -> None:
    """Add the options of a safety evaluation."""
    group = parser.add_argument_group("safety")
    group.add_argument(
        "--safety",
        action="store_true",
        help="Judge return and safety over scenarios and seeds, beside random actions and the shipped controller",
    )
    group.add_argument("--seeds", type=whole_number, metavar="N", help=f"Number of seeds (default: {SEEDS})")
    group.add_argument("--mpc", action="store_true", help="Compare with model predictive control too; takes minutes")
    group.add_argument("--html", type=Path, metavar="FILE", help="Write a report for a browser too")


def judge_safety(given: Mapping[str, Any]) -> None:
    """Evaluate the safety of the model of a run or a file, and print the result."""
    for name in NOT_FOR_SAFETY:
        if name in given:
            raise ValueError(f"--{name} does not go with --safety: velocirl record shows what a policy does")
    path = report_path(given["html"]) if "html" in given else None
    first, seeds = given.get("seed", 0), given.get("seeds", SEEDS)
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    options: dict[str, Any] = {
        "scenarios": [given["scenario"]] if "scenario" in given else None,
        "seeds": range(first, first + seeds),
        "episodes": given.get("episodes", EPISODES),
        "deterministic": "stochastic" not in given,
        "compare": {"mpc": MPPI()} if "mpc" in given else None,
        "responses": path is not None,
    }
    policy, environment, source = find_policy(given)
    from velocirl.monitor.console import make_console

    console = make_console(stderr="json" in given)
    found = _judged(console, policy, environment, options)
    if path is not None:
        found.save(path)
    if "json" in given:
        print(json.dumps({"model": source, **found.as_dict()}, allow_nan=False))
        return
    console.print(str(found), markup=False, highlight=False, soft_wrap=True)
    if path is not None:
        console.print(f"html  {path.resolve()}", style="dim", markup=False, soft_wrap=True)


def _judged(console: Console, policy: Policy, env: Given | None, options: dict[str, Any]) -> SafetyEvaluation:
    from rich.status import Status

    with Status("evaluating", console=console) as status:

        def watch(scenario: str, player: str, seed: int) -> None:
            status.update(f"evaluating: {scenario}, {player}, seed {seed}")

        return evaluate_safety(policy, env, watch=watch, **options)
