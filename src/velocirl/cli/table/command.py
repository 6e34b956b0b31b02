"""`velocirl table`: inspection of a learned table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from velocirl.cli.named.models import add_model, find_table
from velocirl.cli.parsing import Parser, whole_number
from velocirl.cli.table import board as table_board
from velocirl.cli.table import states as table_states
from velocirl.cli.table.grid import Grid, find_grid
from velocirl.cli.table.picture import make_picture, show_picture, write_picture
from velocirl.tabular.agent import TabularAgent

if TYPE_CHECKING:
    from rich.console import Console

TOP = 20


def table(arguments: Sequence[str]) -> None:
    """Show what a tabular agent learned: a map of a grid world, moves of TicTacToe, or states and their values."""
    given = _parser().parse(arguments)
    if given.get("top", 1) < 1:
        raise ValueError(f"--top must be at least 1, got {given['top']}")
    if "state" in given and "top" in given:
        raise ValueError("choose --state or --top")
    agent, source = find_table(given)
    shown = choose_shown(agent, given)
    if "png" in given:
        _write_png(agent, shown, given["png"])
    if "json" in given:
        print(json.dumps({**_named(agent, source), **_as_json(agent, shown)}))
        return
    from velocirl.monitor.console import make_console  # rendering is imported only when needed

    console = make_console()
    console.print(f"{source}: {title_of(agent)}", style="dim", markup=False, soft_wrap=True)
    print_shown(console, agent, shown)


def print_shown(console: Console, agent: TabularAgent, shown: Shown) -> None:
    """Print a map, positions or states."""
    if shown.grid is not None:
        show_picture(console, picture_of(agent, shown.grid))
    elif len(shown.boards) > 1:
        table_board.show_openings(console, agent)
    elif shown.boards:
        table_board.show_board(console, agent, shown.boards[0])
    else:
        table_states.show_states(console, agent, shown.states)


class Shown(NamedTuple):
    """Selected view of a table: one of these."""

    grid: Grid | None = None
    boards: Sequence[Any] = ()
    states: Sequence[int] = ()


def choose_shown(agent: TabularAgent, given: dict[str, Any]) -> Shown:
    board, state = agent.source.id == table_board.GAME, given.get("state")
    if board and "top" not in given:
        return Shown(boards=table_board.openings() if state is None else [table_board.read_board(state)])
    if state is not None:
        return Shown(states=[table_states.read_state(agent, state)])
    grid = None if "top" in given else find_grid(agent.source)
    if grid is not None:
        return Shown(grid)
    found = table_states.top_states(agent, given.get("top", TOP))
    if not found:
        raise ValueError("nothing was learnt yet: every value is as it began")
    return Shown(states=found)


def picture_of(agent: TabularAgent, grid: Grid) -> Any:
    return make_picture(grid, agent.table.look_up(grid.states.ravel()).mean(axis=1), agent.table.initial)


def _write_png(agent: TabularAgent, shown: Shown, path: Path) -> None:
    if shown.grid is None:
        reason = "without --state and --top" if find_grid(agent.source) is not None else "of grid worlds"
        raise ValueError(f"--png draws maps {reason}")
    write_picture(path, picture_of(agent, shown.grid), title_of(agent))


def title_of(agent: TabularAgent) -> str:
    return f"{agent.source.id}, {agent.name}, {agent.steps:,} steps"


def _named(agent: TabularAgent, source: str) -> dict[str, Any]:
    return {"model": source, "environment": agent.source.id, "algorithm": agent.name, "steps": agent.steps}


def _as_json(agent: TabularAgent, shown: Shown) -> dict[str, Any]:
    if shown.boards:
        return {"boards": [table_board.describe(agent, board) for board in shown.boards]}
    if shown.grid is None:
        return {"states": table_states.describe(agent, shown.states)}
    tiles = ["".join(line) for line in shown.grid.tiles]
    return {"map": tiles, "states": table_states.describe(agent, shown.grid.states.ravel().tolist())}


def _parser() -> Parser:
    parser = Parser(
        "table [RUN|FILE]",
        "Show what a tabular agent learnt: a map of a grid world, the moves of TicTacToe, or states and their values.",
    )
    add_model(parser, best_first=False)
    parser.add_argument(
        "--state",
        metavar="STATE",
        help="Show one state: its number, its digits (3,1,0), or a TicTacToe position (X..|.O.|..., the table plays X)",
    )
    parser.add_argument(
        "--top",
        type=whole_number,
        metavar="N",
        help=f"List this many of the most visited or most valuable states (default: {TOP})",
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="Also draw the map in this image file")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    return parser
