"""`velocirl play`: watch an agent, play an environment yourself, or TicTacToe against a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from velocirl.cli.named.models import add_model, add_playing, find_model
from velocirl.cli.parsing import Parser, one_of, whole_number
from velocirl.cli.play.me import play_yourself
from velocirl.cli.play.showing import Pace, animate, told
from velocirl.cli.play.tic_tac_toe import ME, TABLE, play_games
from velocirl.cli.table.board import GAME
from velocirl.tabular.agent import TabularAgent
from velocirl.training.actors.playing import moments
from velocirl.training.agent import Agent
from velocirl.vector.rendering import CANVAS

if TYPE_CHECKING:
    from rich.console import Console


def play(arguments: Sequence[str]) -> None:
    """Watch the agent of a run or a file, play an environment yourself, or TicTacToe against a table."""
    parser = Parser(
        "play [RUN|FILE|ENV]",
        "Watch an agent at play, in this terminal or in a window. With --me, or against a table of TicTacToe, play"
        " yourself.",
    )
    add_model(parser)
    add_playing(parser)
    parser.add_argument(
        "--me",
        action="store_true",
        help="Play the environment ENV yourself, from the keyboard (default: episodes until Esc, random seed)",
    )
    parser.add_argument("--window", action="store_true", help="Open a window")
    parser.add_argument(
        "--fps", type=whole_number, metavar="N", help="Steps per second in the terminal (default: the environment's)"
    )
    parser.add_argument("--watch", action="store_true", help="Watch TicTacToe, too, instead of playing it")
    parser.add_argument(
        "--first", type=one_of([ME, TABLE]), metavar=f"{ME}|{TABLE}", help="Who begins a game (default: ask each time)"
    )
    given = parser.parse(arguments)
    if "me" in given:
        play_yourself(given)
        return
    state, chosen, source = find_model(given)
    agent = Agent.from_state(state, chosen.environment, source)
    if isinstance(agent, TabularAgent) and agent.source.id == GAME and "watch" not in given:
        play_games(agent, source, given.get("first"))
        return
    if "first" in given:
        raise ValueError(f"--first is for a table that has learnt {GAME}, and {source} has learnt {agent.source.id}")
    from velocirl.monitor.console import make_console

    console = make_console()
    console.print(f"{source}: {agent.source.id}, {agent.name}", markup=False, soft_wrap=True)
    try:
        _watch(console, agent, given)
    except KeyboardInterrupt:
        console.print("stopped")


def _watch(console: Console, agent: Agent, given: Mapping[str, Any]) -> None:
    """Show episodes until all are over: in a window, as images of colored blocks, or as text."""
    mode = _mode(console, agent, "window" in given)
    options = {"episodes": given.get("episodes", 1), "seed": given.get("seed", 0)}
    pace = Pace(given.get("fps"))
    shown = mode != "human" and console.is_terminal
    if shown:
        options["drawn"] = pace.shows
    played = moments(agent, mode, deterministic="stochastic" not in given, **options)
    if shown:
        animate(console, played, pace)
        return
    for one in played:
        if one.picture is not None:
            print(one.picture)
        if one.ended:
            console.print(told(one), soft_wrap=True)


def _mode(console: Console, agent: Agent, window: bool) -> str:
    if window:
        return "human"
    from velocirl.monitor.console import shows_pictures

    native = agent.source.native
    if shows_pictures(console) and (native is None or native.draw is not None):
        return "rgb_array" if native is None else CANVAS
    if native is None:
        raise ValueError(
            f"{agent.source.id} shows pictures, and this is no terminal that could: velocirl record writes a film"
        )
    return "ansi"
