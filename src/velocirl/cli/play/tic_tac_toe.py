"""Game of TicTacToe against a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.cli.table.board import EMPTY, MINE, SHOWN, STYLES, THEIRS, winner
from velocirl.tabular.agent import TabularAgent

if TYPE_CHECKING:
    from rich.console import Console

ME, TABLE = "me", "table"
CELLS = tuple("123456789")
WELCOME = """\
[bold]TicTacToe[/bold] against {source}
You are [bold red]O[/], the table is [bold blue]X[/]. Say a cell by its number, row by row from the top; q ends.
The table learnt against an opponent who plays at random: it takes chances that a good player can punish."""
RESULTS = {THEIRS: "[bold green]you win[/]", MINE: "[bold red]the table wins[/]", EMPTY: "[bold]a draw[/]"}


class Tally(NamedTuple):
    """Results of the games so far."""

    won: int = 0
    drawn: int = 0
    lost: int = 0

    def with_result(self, result: int) -> Tally:
        """Return the tally after one more game."""
        return Tally(self.won + (result == THEIRS), self.drawn + (result == EMPTY), self.lost + (result == MINE))


class Ended(Exception):  # noqa: N818 - not a fault
    """The user wants to stop."""


def play_games(agent: TabularAgent, source: str, first: str | None) -> None:
    """Play until the user stops; unless `first` is given, the user is asked who begins each game."""
    from rich.markup import escape

    from velocirl.monitor.console import make_console

    console = make_console()
    console.print(WELCOME.format(source=escape(source)), soft_wrap=True)
    tally = Tally()
    try:
        while True:
            result = play_game(console, agent, first or _ask_first(console))
            tally = tally.with_result(result)
            console.print(f"{RESULTS[result]}   {_say(tally)}", soft_wrap=True)
            if first and _ask(console, "Enter for another game, q to end: ").lower() in ("n", "no"):
                raise Ended
    except (Ended, EOFError, KeyboardInterrupt):
        console.print(f"\n{_say(tally)}" if sum(tally) else "\nno game was finished", soft_wrap=True)


def play_game(console: Console, agent: TabularAgent, first: str) -> int:
    """Play one game; returns the winner, or 0 for a draw."""
    board = np.zeros(9, np.int64)
    turn = THEIRS if first == ME else MINE
    while winner(board) == EMPTY and (board == EMPTY).any():
        if turn == THEIRS:
            show(console, board)
            board[_ask_cell(console, board)] = THEIRS
        else:
            cell = answer(agent, board)
            board[cell] = MINE
            console.print(f"table: {cell + 1}", soft_wrap=True)
        turn = MINE + THEIRS - turn
    show(console, board)
    return winner(board)


def answer(agent: TabularAgent, board: NDArray[np.int64]) -> int:
    """Return the table's move: the best of the free cells."""
    action, _ = agent.predict(board, deterministic=True, action_masks=board == EMPTY)
    return int(action)


def show(console: Console, board: NDArray[np.int64]) -> None:
    """Print the board, with the numbers of its free cells."""
    from rich.text import Text

    text = Text("\n")
    for cell, mark in enumerate(map(int, board)):
        shown = SHOWN[mark] if mark else str(cell + 1)
        text.append(f" {shown} ", STYLES.get(mark, "dim"))
        text.append("\n" if cell in (2, 5) else "" if cell == 8 else "|")
        text.append("---+---+---\n" if cell in (2, 5) else "")
    console.print(text)
    console.print()


def _ask_cell(console: Console, board: NDArray[np.int64]) -> int:
    free = ", ".join(str(cell + 1) for cell in range(9) if board[cell] == EMPTY)
    while True:
        said = _ask(console, "your move: ")
        if said in CELLS and board[int(said) - 1] == EMPTY:
            return int(said) - 1
        console.print(f"{said!r} is no free cell: choose one of {free}, or q to end", markup=False, soft_wrap=True)


def _ask_first(console: Console) -> str:
    while True:
        said = _ask(console, "do you begin? y or n, q to end: ").lower()
        if said in ("y", "yes", ME):
            return ME
        if said in ("n", "no", TABLE):
            return TABLE
        console.print(f"{said!r} is neither y nor n", markup=False, soft_wrap=True)


def _ask(console: Console, question: str) -> str:
    said = console.input(question, markup=False).strip()
    if said.lower() in ("q", "quit", "exit"):
        raise Ended
    return said


def _say(tally: Tally) -> str:
    return f"you have won {tally.won}, drawn {tally.drawn}, lost {tally.lost}"
