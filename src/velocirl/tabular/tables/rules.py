"""Learning rules: how an algorithm values the next state, and how far it moves a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# Smaller values count as 0. A value whose targets are all 0 would otherwise become denormal and stay so, which
# processors compute a hundred times slower.
TINY = 1e-30


class Rule(NamedTuple):
    """Scalar functions of an algorithm; a row has `sets * actions` values, one set after another."""

    sets: int
    value: Callable[..., Any]  # (rows, place, action): the value used for acting
    # (rows, place, mask, action, best, rate, coin): the value of the next state, where `action` will be taken. `best`
    # is the highest value there, `rate` the exploration rate, `coin` the set that is updated.
    follow: Callable[..., Any]
    # (rows, place, action, target, step, coin) -> error: moves a value toward its target
    learn: Callable[..., Any]


def single_value(rows, place, action):
    """Return the value of an action, of a row with one set."""
    return rows[place].values[action]


def learn_single(rows, place, action, target, step, coin):  # noqa: ARG001 - there is one set
    """Move the value of an action a step toward its target. Returns the TD error."""
    values = rows[place].values
    error = target - values[action]
    values[action] = moved_by(values[action], step * error)
    return error


def shift_single(rows, place, action, amount):
    """Move the value of an action by an amount, in a row with one set."""
    values = rows[place].values
    values[action] = moved_by(values[action], amount)


def moved_by(value, amount):
    """Return the value moved by an amount; a non-finite amount is ignored, as its source reports the fault."""
    moved = value + amount
    moved = moved if moved * 0 == 0 else value
    return moved if abs(moved) > TINY else moved * 0


def counted(learn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a rule's `learn` so that it counts the visit; the row must have visits."""

    def learn_and_count(rows, place, action, target, step, coin):
        rows[place].visits[action] += 1 if step > 0 else 0
        return learn(rows, place, action, target, step, coin)

    return learn_and_count
