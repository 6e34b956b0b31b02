"""What an algorithm adds to a table: how it values what comes next, and how far a row moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# What is smaller counts as 0: a value whose targets are all 0 would shrink until processors compute it a hundred times
# slower than others, and stay there.
TINY = 1e-30


class Rule(NamedTuple):
    """The scalar functions of an algorithm; a row has `sets * actions` values, one set after another."""

    sets: int
    value: Callable[..., Any]  # (rows, place, action): what acting goes by
    # (rows, place, mask, action, best, rate, coin): the value of what is seen next, where `action` is going to be
    # taken; `best` is the highest value there, `rate` that of exploring, `coin` the set that learns.
    follow: Callable[..., Any]
    # (rows, place, action, target, step, coin) -> error: moves a value towards its target
    learn: Callable[..., Any]


def single_value(rows, place, action):
    """The value of an action, of a row with one set."""
    return rows[place].values[action]


def learn_single(rows, place, action, target, step, coin):  # noqa: ARG001 - there is one set
    """Move the value of an action a step towards its target; the error that it had."""
    values = rows[place].values
    error = target - values[action]
    values[action] = moved_by(values[action], step * error)
    return error


def shift_single(rows, place, action, amount):
    """Move the value of an action by an amount, of a row with one set."""
    values = rows[place].values
    values[action] = moved_by(values[action], amount)


def moved_by(value, amount):
    """A value that moved by an amount; by one that is not a number it does not, and whoever gave that tells of it."""
    moved = value + amount
    moved = moved if moved * 0 == 0 else value
    return moved if abs(moved) > TINY else moved * 0


def counted(learn: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and the visit is counted, in a row that has a place for it."""

    def learn_and_count(rows, place, action, target, step, coin):
        rows[place].visits[action] += 1 if step > 0 else 0
        return learn(rows, place, action, target, step, coin)

    return learn_and_count
