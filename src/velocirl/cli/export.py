"""`velocirl export`: writes a trained policy as C, ONNX or JSON, to run without velocirl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from velocirl.cli.named.models import add_model, find_agent_of_data, find_model
from velocirl.cli.parsing import Parser, one_of
from velocirl.deployment.exporting import WEIGHTS, WRITERS, chosen_format
from velocirl.deployment.exporting import export as write_export
from velocirl.training.agent import Agent


def export(arguments: Sequence[str]) -> None:
    """Write the policy of a run or a file, and print its path."""
    given = _parser().parse(arguments)
    options = {name: given[name] for name in ("format", "weights", "name") if name in given}
    chosen_format(given.get("out"), options.get("format"))  # raises before anything is read
    if (of_data := find_agent_of_data(given)) is not None:
        agent, source = of_data
    else:
        state, chosen, source = find_model(given)
        agent = Agent.from_state(state, chosen.environment, source)
    path = write_export(agent, given.get("out"), **options)
    from velocirl.monitor.console import make_console

    console = make_console()
    console.print(f"{source}: {agent.source.id}, {agent.name}", markup=False, soft_wrap=True)
    console.print(f"{path.resolve()}  {path.stat().st_size:,} bytes", markup=False, soft_wrap=True)


def _parser() -> Parser:
    parser = Parser(
        "export [RUN|FILE|ENV]",
        "Write the policy of a run or of a model to a file that acts without velocirl: one file of C99 for a"
        " controller, ONNX, or JSON. It takes the best action and draws nothing.",
    )
    add_model(parser)
    parser.add_argument(
        "--format",
        type=one_of(list(WRITERS)),
        metavar="|".join(WRITERS),
        help="What it is written as (default: as --out ends)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="Where to (default: named after the environment)")
    parser.add_argument(
        "--weights", type=one_of(list(WEIGHTS)), metavar="|".join(WEIGHTS),
        help="Weights of the network as they are, or as whole numbers of a quarter of the size (default: float32)",
    )  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="Of the C function or the graph (default: the environment's)")
    return parser
