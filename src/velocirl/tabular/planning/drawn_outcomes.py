"""Exact outcome probabilities of compiled environments, found by running their functions in plain Python.

A function that draws random numbers is run with chosen words in their place. Its result is piecewise constant in each
word, as for `random.integer(rng, 0, 3)` or `random.uniform(rng) < 0.1`. Bisection finds the pieces: their lengths are
the probabilities, to 2^-32. A continuous number has as many pieces as there are words, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.framing import repeated_step
from velocirl.engine.random import MASK, rotate
from velocirl.engine.records import with_attributes
from velocirl.tabular.planning.exploring import explore_model
from velocirl.tabular.planning.models import TabularModel

WORDS = 2**32  # the upper half of a word decides; the lower half stays in the middle of its range
GRID, MOST_PIECES, MOST_DRAWS = 64, 512, 4
Shares = dict[Any, float]  # probabilities by result


class _Words:
    """Random stream that returns the words of a script and counts all draws."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self._script, self.asked = script, 0

    def __getitem__(self, place: int) -> int:
        if place == 0:
            self.asked += 1
            return 0
        word = self._script[self.asked - 1] if self.asked <= len(self._script) else WORDS // 2
        return rotate(((word << 32) | 2**31) & MASK, 47)  # `random.bits` rotates it back by 17

    def __setitem__(self, place: int, value: int) -> None:
        """Ignore the new state: the next word comes from the script."""


def shares_of(run: Callable[[Any], Hashable], what: str) -> Shares:
    """Return the results of `run(rng)` with their probabilities."""
    return _shares(run, what, ())


def _shares(run: Callable[[Any], Hashable], what: str, script: tuple[int, ...]) -> Shares:
    rng = _Words(script)
    found = run(rng)
    if rng.asked <= len(script):
        return {found: 1.0}
    if len(script) == MOST_DRAWS:
        raise ValueError(f"{what} draws more than {MOST_DRAWS} numbers: write its outcomes down for explore_model")
    known: dict[int, tuple[Any, ...]] = {}

    def at(word: int) -> tuple[Any, ...]:
        if word not in known:
            known[word] = tuple(_shares(run, what, (*script, word)).items())
        return known[word]

    ends: list[int] = []  # last words of pieces

    def split(low: int, high: int) -> None:
        if at(low) == at(high):
            return
        if high - low == 1:
            ends.append(low)
        else:
            middle = (low + high) // 2
            split(low, middle)
            split(middle, high)
        if len(ends) > MOST_PIECES:
            raise ValueError(f"{what} draws numbers that are continuous: a table has no place for them")

    marks = [WORDS * k // GRID for k in range(GRID)] + [WORDS - 1]
    for low, high in pairwise(marks):
        split(low, high)
    shares: Shares = {}
    for first, last in zip([-1, *ends], [*ends, WORDS - 1], strict=True):
        for one, share in at(last):
            shares[one] = shares.get(one, 0.0) + share * (last - first) / WORDS
    return shares


def model_of(environment: str | Environment, params: dict[str, Any] | None, max_states: int) -> TabularModel:
    """Return the model of a compiled environment; states are numbered by its observations."""
    native = registry.find(environment) if isinstance(environment, str) else environment
    seen_space, action_space, observe = native.observation, native.action, native.observe
    if not isinstance(seen_space, Discrete) or not isinstance(action_space, Discrete) or observe is None:
        raise ValueError(
            f"{native.id} sees {native.observation} and takes {native.action}: a model needs Discrete ones"
        )
    settings = with_attributes(native.params.rows(1, params or {}))[0]
    step, kind = repeated_step(native), native.state.rows(1).dtype
    first_state, first_action = int(seen_space.start), int(action_space.start)

    def row_of(key: bytes) -> Any:
        return with_attributes(np.frombuffer(bytearray(key), kind))[0]

    def begin(rng: Any) -> bytes:
        rows = native.state.rows(1)
        native.reset(with_attributes(rows)[0], settings, rng)
        return rows.tobytes()

    def outcomes(key: bytes) -> dict[int, list[tuple[float, bytes, float, bool]]]:
        legal = np.ones(action_space.n, np.int8)
        if native.legal is not None:
            native.legal(row_of(key), settings, legal)
        found = {}
        for action in np.flatnonzero(legal):

            def run(rng: Any, action: int = int(action)) -> tuple[bytes, float, bool]:
                state = bytearray(key)
                row = with_attributes(np.frombuffer(state, kind))[0]
                reward, terminated = step(row, settings, action + first_action, rng)
                return bytes(state), float(reward), bool(terminated)

            shares = shares_of(run, f"step of {native.id}")
            found[int(action)] = [(share, *result) for result, share in shares.items()]
        return found

    explored, keys = explore_model(
        shares_of(begin, f"reset of {native.id}"), outcomes, actions=int(action_space.n), max_states=max_states
    )
    seen, numbers = np.zeros(1, np.int64), []
    for key in keys:
        observe(row_of(key), settings, seen)
        numbers.append(int(seen[0]) - first_state)
    if len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{native.id} shows the same number in several states: a model needs states that are seen, such as without"
            " counters of steps"
        )
    return _numbered(explored, numbers, int(seen_space.n))


def _numbered(explored: TabularModel, numbers: list[int], states: int) -> TabularModel:
    """Return the model with renumbered states; in unreachable ones, every action ends the episode."""
    rows: list[dict[int, list[Any]]] = [
        {action: [(1.0, state, 0.0, True)] for action in range(explored.actions)} for state in range(states)
    ]
    start = np.zeros(states)
    columns = explored.probabilities, explored.next_states, explored.rewards, explored.terminated
    for place, number in enumerate(numbers):
        rows[number] = {}
        start[number] = 0.0 if explored.start is None else explored.start[place]
        for action in np.flatnonzero(explored.legal[place]):
            pair = place * explored.actions + int(action)
            some = slice(explored.offsets[pair], explored.offsets[pair + 1])
            rows[number][int(action)] = [
                (share, numbers[after], reward, over)
                for share, after, reward, over in zip(*(one[some] for one in columns), strict=True)
            ]
    return TabularModel.from_outcomes(rows, actions=explored.actions, start=start)
