"""Exploration strategies: epsilon-greedy, softmax and UCB over the values of a row.

Every strategy has a rate, which falls over training: the probability of a random action, the temperature of a softmax,
or the weight of the UCB bonus. Ties are broken uniformly, and an action that the mask forbids is never chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine import random

LOWEST = -3.0e38  # below every value
TRIED_NEVER = 1.0e30  # score of an action that was never tried: above every value
COLDEST = 1.0e-6  # the lowest temperature, so that a schedule may end at 0: only the best are chosen then
WAYS = ("epsilon_greedy", "softmax", "ucb")


class Exploring(NamedTuple):
    """Exploration strategy, compiled for rows of one kind."""

    choose: Callable[..., Any]  # (rows, place, mask, rng, rate) -> the action, and the value of the best one
    best: Callable[..., Any]  # (rows, place, mask) -> the highest value
    expected: Callable[..., Any]  # (rows, place, mask, rate) -> the mean value of the action chosen by `choose`
    greedy: Callable[..., Any]  # (rows, place, mask, rng) -> one of the best actions
    legal: Callable[..., Any]  # (mask, action)


class Choices(NamedTuple):
    """Functions that all strategies choose with."""

    actions: int
    legal: Callable[..., Any]  # (mask, action)
    value: Callable[..., Any]  # (rows, place, action)
    best: Callable[..., Any]  # (rows, place, mask)
    draw: Callable[..., Any]  # (rows, place, mask, word, least)


def exploring(way: str, actions: int, masked: bool, value: Callable[..., Any]) -> Exploring:
    """Build a strategy by its name; `value(rows, place, action)` returns the value of an action."""
    legal = legality(masked)
    best = highest_of(actions, legal, value)
    draw = drawer(actions, legal, value)

    def greedy(rows, place, mask, rng):
        return draw(rows, place, mask, random.bits(rng), best(rows, place, mask))

    ways = {"epsilon_greedy": epsilon_greedy, "softmax": softmax, "ucb": upper_confidence}
    choose, expected = ways[way](Choices(actions, legal, value, best, draw))
    return Exploring(choose, best, expected, greedy, legal)


def highest_of(actions: int, legal: Callable[..., Any], value: Callable[..., Any]) -> Callable[..., Any]:
    """Compose `best(rows, place, mask)`: the highest value of a legal action."""

    def best(rows, place, mask):
        highest = value(rows, place, 0) if legal(mask, 0) else LOWEST
        for a in range(1, actions):
            each = value(rows, place, a)
            highest = each if legal(mask, a) and each > highest else highest
        return highest

    return best


def drawer(actions: int, legal: Callable[..., Any], value: Callable[..., Any]) -> Callable[..., Any]:
    """Compose `draw(rows, place, mask, word, least)`: a legal action of value >= `least`, by a word's last 32 bits."""

    def draw(rows, place, mask, word, least):
        count, chosen = 0, 0
        for a in range(actions):
            count += 1 if legal(mask, a) and value(rows, place, a) >= least else 0
            chosen = a if legal(mask, a) else chosen  # in case another thread has lowered the best value since
        left = np.int64(((word & 0xFFFFFFFF) * count) >> 32)
        for a in range(actions):
            fits = legal(mask, a) and value(rows, place, a) >= least
            chosen = a if fits and left == 0 else chosen
            left -= 1 if fits else 0
        return chosen

    return draw


def epsilon_greedy(choices: Choices) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Random action with probability `rate`, otherwise the best. Returns the functions `choose` and `expected`."""
    actions, legal, value, best, draw = choices

    def choose(rows, place, mask, rng, rate):
        highest = best(rows, place, mask)
        word = random.bits(rng)
        explores = np.float32(word >> 40) * np.float32(5.9604644775390625e-08) < rate
        return draw(rows, place, mask, word, LOWEST if explores else highest), highest

    def expected(rows, place, mask, rate):
        total = value(rows, place, 0) * 0
        count = 0
        for a in range(actions):
            if legal(mask, a):
                total += value(rows, place, a)
                count += 1
        return best(rows, place, mask) * (1 - rate) + total / max(count, 1) * rate

    return choose, expected


def softmax(choices: Choices) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Each action in proportion to exp(value / rate). Returns the functions `choose` and `expected`."""
    actions, legal, value, best, _ = choices

    def weight_of(rows, place, action, highest, rate):
        return exp(np.float32((value(rows, place, action) - highest) / max(rate, COLDEST)))

    def choose(rows, place, mask, rng, rate):
        highest = best(rows, place, mask)
        total = value(rows, place, 0) * 0
        for a in range(actions):
            if legal(mask, a):
                total += weight_of(rows, place, a, highest, rate)
        left = total * random.uniform(rng)
        chosen = -1
        for a in range(actions):
            if legal(mask, a):
                # The last legal one if rounding leaves a rest, and in any case a legal one.
                if left >= 0 or chosen < 0:
                    chosen = a
                left -= weight_of(rows, place, a, highest, rate)
        return max(chosen, 0), highest

    def expected(rows, place, mask, rate):
        highest = best(rows, place, mask)
        total = value(rows, place, 0) * 0
        weighted = value(rows, place, 0) * 0
        for a in range(actions):
            if legal(mask, a):
                weight = weight_of(rows, place, a, highest, rate)
                total += weight
                weighted += weight * value(rows, place, a)
        return weighted / total

    return choose, expected


def upper_confidence(choices: Choices) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Highest value + rate * sqrt(log(visits of the state) / visits of the action); untried actions first.

    A visit counts when it is learned from: environments in one state at the same time do not see each other's.
    """
    actions, legal, value, best, _ = choices

    def tries(rows, place, action):
        return np.int64(rows[place].visits[action]) & 0xFFFFFFFF  # 32-bit counter, which may have overflowed

    def score(rows, place, action, visits, rate):
        tried = tries(rows, place, action)
        if tried == 0:
            return np.float32(TRIED_NEVER)
        return np.float32(value(rows, place, action) + rate * sqrt(log(np.float32(visits)) / tried))

    def highest_score(rows, place, mask, rate):
        visits = 0
        for a in range(actions):
            visits += tries(rows, place, a)
        highest = np.float32(LOWEST)
        for a in range(actions):
            if legal(mask, a):
                highest = max(highest, score(rows, place, a, visits, rate))
        return highest, visits

    def choose(rows, place, mask, rng, rate):
        highest, visits = highest_score(rows, place, mask, rate)
        count, chosen = 0, 0
        for a in range(actions):
            count += 1 if legal(mask, a) and score(rows, place, a, visits, rate) >= highest else 0
            chosen = a if legal(mask, a) else chosen  # in case another thread has lowered the highest score since
        left = random.integer(rng, 0, count)
        for a in range(actions):
            fits = legal(mask, a) and score(rows, place, a, visits, rate) >= highest
            chosen = a if fits and left == 0 else chosen
            left -= 1 if fits else 0
        return chosen, best(rows, place, mask)

    def expected(rows, place, mask, rate):
        highest, visits = highest_score(rows, place, mask, rate)
        total = value(rows, place, 0) * 0
        count = 0
        for a in range(actions):
            if legal(mask, a) and score(rows, place, a, visits, rate) >= highest:
                total += value(rows, place, a)
                count += 1
        return total / max(count, 1)

    return choose, expected


def legality(masked: bool) -> Callable[..., Any]:
    """Return `legal(mask, action)` for environments with or without masks."""
    return legal_by_mask if masked else legal_always


def legal_always(mask, action):  # noqa: ARG001 - as the other
    """Return True: the environment has no masks."""
    return True


def legal_by_mask(mask, action):
    """Return whether the mask allows the action."""
    return mask[action] != 0
