"""TicTacToe solved exactly, from its rules: what any policy is worth, for the tests of planners and learners.

A state is known by its code: the observation (0 empty, 1 mine, 2 theirs), cell after cell, as the digits of a number to
the base 3.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from velocirl.tabular.planning.exploring import explore_model
from velocirl.tabular.planning.policy_evaluation import evaluate_policy
from velocirl.tabular.planning.value_iteration import value_iteration

CODES = 3**9
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def code_of(observation):
    """The code of nine cells."""
    code = 0
    for mark in observation:
        code = code * 3 + int(mark)
    return code


def cells_of(code):
    """The nine cells of a code."""
    return tuple(code // 3 ** (8 - cell) % 3 for cell in range(9))


def outcomes_of(code, illegal_moves):
    """What may follow each move: {cell: [(probability, next code, reward, terminated), ...]}."""
    cells = cells_of(code)
    empty = [cell for cell in range(9) if cells[cell] == 0]
    moves = {cell: _answers(_marked(cells, cell, 1)) for cell in empty}
    if illegal_moves:
        moves |= {cell: [(1.0, code, -1.0, True)] for cell in range(9) if cell not in empty}
    return moves


def _answers(cells):
    """What the opponent makes of a board on which I have just moved."""
    empty = [cell for cell in range(9) if cells[cell] == 0]
    if _has_line(cells, 1) or not empty:
        return [(1.0, code_of(cells), float(_has_line(cells, 1)), True)]
    boards = [_marked(cells, cell, 2) for cell in empty]
    return [
        (1 / len(empty), code_of(board), -float(_has_line(board, 2)), _has_line(board, 2) or 0 not in board)
        for board in boards
    ]


def _marked(cells, cell, mark):
    return (*cells[:cell], mark, *cells[cell + 1 :])


def _has_line(cells, mark):
    return any(all(cells[cell] == mark for cell in line) for line in LINES)


@cache
def game(illegal_moves):
    """The model, and the code of each of its states; illegal moves lose, or are not there."""
    first = {code_of(_marked((0,) * 9, cell, 2)): 0.5 / 9 for cell in range(9)}
    model, keys = explore_model({0: 0.5} | first, lambda code: outcomes_of(code, illegal_moves), actions=9)
    return model, np.array(keys)


@cache
def exact():
    """(model, keys, plan): legal moves only, the code of each state, and the best play at gamma = 1."""
    model, keys = game(illegal_moves=False)
    return model, keys, value_iteration(model, 1.0)


def value_of_policy(actions_by_code):
    """The expected return per game of a deterministic policy (19683,), where an illegal move loses."""
    model, keys = game(illegal_moves=True)
    return model.start_value(evaluate_policy(model, np.asarray(actions_by_code)[keys], 1.0))


def outcome_of_policy(actions_by_code):
    """The shares of games that such a policy wins, draws and loses."""
    model, keys = game(illegal_moves=True)
    shares = []
    for result in (1.0, 0.0, -1.0):
        counted = replace(model, rewards=model.terminated & (model.rewards == result))
        shares.append(counted.start_value(evaluate_policy(counted, np.asarray(actions_by_code)[keys], 1.0)))
    return tuple(shares)
