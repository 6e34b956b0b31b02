"""Q-learning of TicTacToe with NumPy: a straightforward version with one game at a time, and a vectorized one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

LEARNING_RATE, GAMMA, EPSILON = 0.1, 1.0, 0.1
LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])
DIGITS = 3 ** np.arange(8, -1, -1)


class Game:
    """TicTacToe board of nine cells: 0 empty, 1 mine, 2 the opponent's.

    The opponent plays at random and begins half of the games.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.board = rng, np.zeros(9, np.int64)

    def reset(self) -> None:
        """Start a new game."""
        self.board[:] = 0
        if self.rng.random() < 0.5:
            self.board[self.rng.integers(9)] = 2

    def step(self, action: int) -> tuple[float, bool]:
        """Mark a cell and let the opponent answer; returns the reward and whether the game is over."""
        self.board[action] = 1
        if self.has_line(1):
            return 1.0, True
        empty = np.flatnonzero(self.board == 0)
        if len(empty) == 0:
            return 0.0, True
        self.board[empty[self.rng.integers(len(empty))]] = 2
        if self.has_line(2):
            return -1.0, True
        return 0.0, len(empty) == 1

    def has_line(self, mark: int) -> bool:
        """Return whether `mark` has three in a row."""
        return bool((self.board[LINES] == mark).all(axis=1).any())


class Learner:
    """Learner that plays and updates step by step."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.game = Game(self.rng)
        self.table = np.zeros((3**9, 9), np.float32)
        self.game.reset()

    def choose(self, state: int, mask: NDArray[np.bool_]) -> int:
        """Choose an epsilon-greedy legal action; ties are broken at random."""
        if self.rng.random() < EPSILON:
            choices = np.flatnonzero(mask)
        else:
            values = np.where(mask, self.table[state], -np.inf)
            choices = np.flatnonzero(values == values.max())
        return int(choices[self.rng.integers(len(choices))])

    def run(self, steps: int) -> None:
        """Take `steps` steps with an update after each."""
        game, table = self.game, self.table
        state = int(game.board @ DIGITS)
        for _ in range(steps):
            action = self.choose(state, game.board == 0)
            reward, terminated = game.step(action)
            if terminated:
                target = reward
                game.reset()
                next_state = int(game.board @ DIGITS)
            else:
                next_state = int(game.board @ DIGITS)
                target = reward + GAMMA * table[next_state][game.board == 0].max()
            table[state, action] += LEARNING_RATE * (target - table[state, action])
            state = next_state


class FleetLearner:
    """Learner that plays many games in parallel; each line of `run` applies to all of them."""

    def __init__(self, copies: int) -> None:
        self.rng = np.random.default_rng(0)
        self.boards = np.zeros((copies, 9), np.int64)
        self.table = np.zeros((3**9, 9), np.float32)
        self.copies = np.arange(copies)
        self.reset(self.copies)

    def reset(self, copies: NDArray[np.int64]) -> None:
        """Start new games."""
        self.boards[copies] = 0
        begun = copies[self.rng.random(len(copies)) < 0.5]
        self.boards[begun, self.rng.integers(0, 9, len(begun))] = 2

    def draw(self, fits: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sample one allowed column of each row."""
        return np.where(fits, self.rng.random(fits.shape), -1.0).argmax(axis=1)

    def run(self, steps: int) -> None:
        """Take `steps` steps over all games together, with an update after each."""
        boards, table, copies = self.boards, self.table, self.copies
        for _ in range(steps // len(copies)):
            states, legal = boards @ DIGITS, boards == 0
            values = np.where(legal, table[states], -np.inf)
            best = values == values.max(axis=1, keepdims=True)
            explores = self.rng.random(len(copies)) < EPSILON
            actions = self.draw(np.where(explores[:, None], legal, best))
            boards[copies, actions] = 1
            won = (boards[:, LINES] == 1).all(axis=2).any(axis=1)
            empty = boards == 0
            answered = copies[~won & empty.any(axis=1)]
            boards[answered, self.draw(empty[answered])] = 2
            lost = (boards[:, LINES] == 2).all(axis=2).any(axis=1)
            over = won | lost | (boards != 0).all(axis=1)
            rewards = won.astype(np.float32) - lost
            following = np.where(boards == 0, table[boards @ DIGITS], -np.inf).max(axis=1)
            targets = rewards + GAMMA * np.where(over, 0.0, following)
            # Every game's error counts, even if several games were in the same state.
            np.add.at(table, (states, actions), LEARNING_RATE * (targets - table[states, actions]))
            self.reset(copies[over])


def training(steps: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps, one game after another."""
    learner = Learner()
    return lambda: learner.run(steps)


def fleet_training(copies: int, steps: int) -> Callable[[], object]:
    """Return a call that takes `steps` steps of many games in parallel."""
    learner = FleetLearner(copies)
    return lambda: learner.run(steps)
