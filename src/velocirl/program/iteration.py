"""Operations of an iteration, and the loops and conditions around them.

An iteration is a tuple of these. It says what happens and in which order, and nothing about how: a backend binds each
name to a function and decides which rows pass through which operations together.

A *counter* is an integer with a name: the index of a loop, how often it repeats, or what an operation returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ZERO = "zero"  # the counter that is always 0


@dataclass(frozen=True)
class Rows:
    """Apply a row function, or a network, to each row. Rows are independent of each other."""

    name: str
    at: str = ZERO  # the counter of the time step, where a row has several


@dataclass(frozen=True)
class Advance:
    """Let each environment take a step. Compiled environments are rows as well; others step in Python."""

    name: str = "advance"


@dataclass(frozen=True)
class Once:
    """Call a function once for all rows, with up to three counters; its result may become another one."""

    name: str
    reads: tuple[str, ...] = ()
    into: str | None = None


@dataclass(frozen=True)
class Loop:
    """Repeat operations `count` times; `counter` is the index. The loop ends early once `until` is not 0."""

    counter: str
    count: str
    body: Operations
    until: str | None = None


@dataclass(frozen=True)
class Choose:
    """Run one list of operations where a counter is not 0, else another one."""

    counter: str
    body: Operations
    otherwise: Operations = ()


@dataclass(frozen=True)
class Listed:
    """Apply row operations to a list of rows instead: `find` lists them and returns how many there are."""

    find: str
    body: Operations


@dataclass(frozen=True)
class Timed:
    """Operations of which only some turns are timed, because reading the clock would take too long otherwise."""

    turn: str
    body: Operations


@dataclass(frozen=True)
class Phase:
    """Operations whose time is reported under a name."""

    name: str
    body: Operations


Operation = Rows | Advance | Once | Loop | Choose | Listed | Timed | Phase
Operations = tuple[Operation, ...]


def rows(name: str, at: str = ZERO) -> Rows:
    """Apply a row function to each row."""
    return Rows(name, at)


def once(name: str, *reads: str, into: str | None = None) -> Once:
    """Call a function once."""
    return Once(name, reads, into)


def loop(counter: str, count: str, *body: Operation, until: str | None = None) -> Loop:
    """Repeat operations."""
    return Loop(counter, count, body, until)


def choose(counter: str, body: Operations, otherwise: Operations = ()) -> Choose:
    """Run operations under a condition that is known when the iteration runs."""
    return Choose(counter, body, otherwise)


def listed(find: str, *body: Operation) -> Listed:
    """Apply operations to the rows that a function lists."""
    return Listed(find, body)


def timed(turn: str, *body: Operation) -> Timed:
    """Time some turns of these operations."""
    return Timed(turn, body)


def phase(name: str, *body: Operation) -> Phase:
    """Report the time of these operations."""
    return Phase(name, body)


def when(condition: object, *body: Operation) -> Operations:
    """Include operations only if a condition holds that is known when the iteration is built."""
    return body if condition else ()


def walk(operations: Operations) -> Iterator[Operation]:
    """Yield all operations, outer ones before those within them."""
    for one in operations:
        yield one
        if isinstance(one, Choose):
            yield from walk(one.body + one.otherwise)
        elif isinstance(one, Loop | Listed | Timed | Phase):
            yield from walk(one.body)
