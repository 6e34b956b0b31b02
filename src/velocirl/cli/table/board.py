"""TicTacToe boards: parsing of positions, and a table's values of their moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from velocirl.tabular.agent import TabularAgent

GAME = "TicTacToe-v1"
EMPTY, MINE, THEIRS = 0, 1, 2
MARKS = {".": EMPTY, "_": EMPTY, "-": EMPTY, "X": MINE, "O": THEIRS}
SHOWN = ".XO"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
STYLES = {MINE: "bold blue", THEIRS: "bold red"}
BOARD = "write nine cells, row by row, X for the table, O for its opponent, . for none: X..|.O.|..."
CELL = 8  # columns


def read_board(text: str) -> NDArray[np.int64]:
    """Parse a position in which it is the table's turn, as an observation."""
    letters = [letter.upper() for letter in text if letter not in "|/ \n\t"]
    wrong = next((letter for letter in letters if letter not in MARKS), None)
    if wrong is not None or len(letters) != 9:
        problem = f"{wrong!r} is no mark" if wrong is not None else f"that is {len(letters)} cells"
        raise ValueError(f"--state {text!r}: {problem}; {BOARD}")
    board = np.array([MARKS[letter] for letter in letters])
    mine, theirs = int((board == MINE).sum()), int((board == THEIRS).sum())
    if winner(board) != EMPTY or mine + theirs == 9:
        raise ValueError(f"--state {text!r}: this game is over; there is no move left to be valued")
    if theirs - mine not in (0, 1):
        raise ValueError(
            f"--state {text!r}: with {mine} X and {theirs} O it is not the table's turn;"
            " there must be as many O as X, or one more"
        )
    return board


def winner(board: NDArray[np.int64]) -> int:
    """Return the mark that has three in a line, or 0."""
    return next((int(board[a]) for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), EMPTY)


def moves_of(agent: TabularAgent, board: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Return the values of the nine moves, NaN for taken cells, and the best move."""
    values = np.where(board == EMPTY, agent.q_values(board), np.nan).astype(np.float64)
    return values, int(np.nanargmax(values))


def openings() -> list[NDArray[np.int64]]:
    """Return the positions the table can face first: the empty board, and the nine after the opponent's first move."""
    boards = np.zeros((10, 9), np.int64)
    boards[np.arange(1, 10), np.arange(9)] = THEIRS
    return list(boards)


def show_board(console: Console, agent: TabularAgent, board: NDArray[np.int64]) -> None:
    """Print a position with the value of every move."""
    console.print(_valued(agent, board))
    console.print(_in_words(agent, board), soft_wrap=True)


def show_openings(console: Console, agent: TabularAgent) -> None:
    """Print the empty board, and the answers to every opening of the opponent."""
    from rich.table import Table

    empty, *answers = openings()
    console.print("The table begins:\n", style="bold")
    show_board(console, agent, empty)
    console.print("\nIts opponent begins:\n", style="bold")
    across = max(1, min(3, console.width // (3 * CELL + 4)))
    grid = Table.grid(padding=(0, 4, 0, 0))
    for first in range(0, 9, across):
        grid.add_row(*(_valued(agent, board) for board in answers[first : first + across]))
        grid.add_row()
    console.print(grid)
    console.print("X is the table, O its opponent; a number is the mean result (1 won, -1 lost) that a move leads to.")


def _valued(agent: TabularAgent, board: NDArray[np.int64]) -> Text:
    from rich.text import Text

    values, best = moves_of(agent, board)
    text = Text()
    for cell in range(9):
        mark = int(board[cell])
        shown = SHOWN[mark] if mark else f"{values[cell]:+.3f}"
        shown = f"[{shown}]" if cell == best else shown  # distinguishable without color too
        text.append(f"{shown:^{CELL}}", STYLES.get(mark, "bold black on green" if cell == best else ""))
        text.append("\n" if cell in (2, 5) else "")
    return text


def _in_words(agent: TabularAgent, board: NDArray[np.int64]) -> str:
    values, best = moves_of(agent, board)
    if (values[board == EMPTY] == agent.config.initial_value).all():
        return "this position was never met in training: all moves count the same"
    return f"best: cell {best + 1} of 9 (row {best // 3 + 1}, column {best % 3 + 1}), worth {values[best]:+.3f}"


def describe(agent: TabularAgent, board: NDArray[np.int64]) -> dict[str, Any]:
    """Describe a position and its moves as plain values."""
    values, best = moves_of(agent, board)
    return {
        "board": "".join(SHOWN[mark] for mark in board),
        "values": [None if np.isnan(value) else float(value) for value in values],
        "best": best,
    }
