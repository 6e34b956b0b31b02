"""Q-learning of TicTacToe in plain Python: a table of lists, one game after another."""

from __future__ import annotations

import random
from collections.abc import Callable

LEARNING_RATE, GAMMA, EPSILON = 0.1, 1.0, 0.1
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class Game:
    """TicTacToe board of nine cells: 0 empty, 1 mine, 2 the opponent's.

    The opponent plays at random and begins half of the games.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.board = rng, [0] * 9

    def reset(self) -> None:
        """Start a new game."""
        self.board = [0] * 9
        if self.rng.random() < 0.5:
            self.board[self.rng.randrange(9)] = 2

    def step(self, action: int) -> tuple[float, bool]:
        """Mark a cell and let the opponent answer; returns the reward and whether the game is over."""
        self.board[action] = 1
        if self.has_line(1):
            return 1.0, True
        empty = self.empty()
        if not empty:
            return 0.0, True
        self.board[self.rng.choice(empty)] = 2
        if self.has_line(2):
            return -1.0, True
        return 0.0, len(empty) == 1

    def has_line(self, mark: int) -> bool:
        """Return whether `mark` has three in a row."""
        board = self.board
        return any(board[a] == mark and board[b] == mark and board[c] == mark for a, b, c in LINES)

    def empty(self) -> list[int]:
        """Return the empty cells."""
        return [cell for cell, mark in enumerate(self.board) if mark == 0]

    def state(self) -> int:
        """Return the board's index in the table."""
        number = 0
        for mark in self.board:
            number = number * 3 + mark
        return number


class Learner:
    """Learner that plays and updates step by step."""

    def __init__(self) -> None:
        self.rng = random.Random(0)  # noqa: S311 - a game, not a secret
        self.game = Game(self.rng)
        self.table = [[0.0] * 9 for _ in range(3**9)]
        self.game.reset()

    def choose(self, values: list[float], legal: list[int]) -> int:
        """Choose an epsilon-greedy legal action; ties are broken at random."""
        if self.rng.random() < EPSILON:
            return self.rng.choice(legal)
        highest = max(values[action] for action in legal)
        return self.rng.choice([action for action in legal if values[action] == highest])

    def run(self, steps: int) -> None:
        """Take `steps` steps with an update after each."""
        game, table = self.game, self.table
        state, legal = game.state(), game.empty()
        for _ in range(steps):
            values = table[state]
            action = self.choose(values, legal)
            reward, terminated = game.step(action)
            if terminated:
                target = reward
                game.reset()
                state, legal = game.state(), game.empty()
            else:
                state, legal = game.state(), game.empty()
                target = reward + GAMMA * max(table[state][next_action] for next_action in legal)
            values[action] += LEARNING_RATE * (target - values[action])


def training(steps: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps."""
    learner = Learner()
    return lambda: learner.run(steps)
