"""`velocirl card`: model card of a run, as Markdown with images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from velocirl.cli.named.models import add_model, find_model
from velocirl.cli.parsing import Parser, whole_number
from velocirl.deployment.card import EPISODES, SEEDS, write_card
from velocirl.runs.directory import Run, RunNotFoundError
from velocirl.runs.finding import find_run
from velocirl.training.agent import Agent
from velocirl.training.offline import OfflineAgent


def card(arguments: Sequence[str]) -> None:
    """Evaluate the model of a run or a file, and write its card."""
    given = _parser().parse(arguments)
    if "out" not in given:
        raise ValueError("say in which directory the card is to be written: --out DIR")
    if (out := given["out"]).exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; a card is written into a directory")
    options = {name: given[name] for name in ("episodes", "seeds") if name in given}
    for name, number in options.items():
        if number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}")
    state, chosen, source = find_model(given)
    agent = Agent.from_state(state, chosen.environment, source)
    from rich.status import Status

    from velocirl.monitor.console import make_console

    console = make_console()
    with Status("evaluating", console=console) as status:

        def watch(scenario: str, player: str, seed: int) -> None:
            status.update(f"evaluating: {scenario}, {player}, seed {seed}")

        offline = _judged_by_data(agent, status.update) if isinstance(agent, OfflineAgent) else None
        path = write_card(agent, out, _run(given), source, watch=watch, offline=offline, **options)
    console.print(str(path.resolve()), markup=False, soft_wrap=True)


def _judged_by_data(agent: OfflineAgent, update: Callable[[str], None]) -> object:
    """Evaluate an agent on the data that it was trained on; None if the data is missing."""
    try:
        data = agent.data
    except (ValueError, OSError):  # the card states that it is missing
        return None
    from velocirl.judging.report import judge_offline  # slow to import, and slower to run

    return judge_offline(
        agent, data, progress=lambda done, total: update(f"judging by data: fit {done + 1} of {total}")
    )


def _run(given: dict[str, Any]) -> Run | None:
    """Return the run that the model belongs to; None for a file."""
    name = given.get("model")
    if name is not None and Path(name).is_file():
        return None
    try:
        return find_run(name)
    except RunNotFoundError:  # a pretrained model of an environment
        return None


def _parser() -> Parser:
    parser = Parser(
        "card [RUN|FILE|ENV]",
        "Write the model card of a run: Markdown with intended use and validity, score, learning curve, trajectories"
        " against limits, safety figures, data, settings and versions, with the model. One that learnt from data is"
        " judged by these.",
    )
    add_model(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="The directory for the card and its pictures")
    parser.add_argument(
        "--episodes", type=whole_number, metavar="N", help=f"Episodes of its score (default: {EPISODES})"
    )
    parser.add_argument(
        "--seeds", type=whole_number, metavar="N", help=f"Seeds of its safety figures (default: {SEEDS})"
    )
    return parser
