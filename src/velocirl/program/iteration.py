"""Operations of an iteration, and the loops and conditions around them.

An iteration is a tuple of operations. It fixes what happens and in which order, not how. A backend binds each name to
a function and decides which rows pass through which operations together.

A *counter* is an integer with a name: the index of a loop, its number of repetitions, or the result of an operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ZERO = "zero"  # the counter that is always 0


@dataclass(frozen=True)
class Rows:
    """Application of a row function, or a network, to each row. Rows are independent of each other."""

    name: str
    at: str = ZERO  # the counter of the time step, for rows with several steps


@dataclass(frozen=True)
class Advance:
    """One step of every environment. Compiled environments are rows as well; others step in Python."""

    name: str = "advance"


@dataclass(frozen=True)
class Once:
    """One function call for all rows, with up to three counters; its result may become another counter."""

    name: str
    reads: tuple[str, ...] = ()
    into: str | None = None


@dataclass(frozen=True)
class Loop:
    """Operations repeated `count` times; `counter` is the index. The loop ends early once `until` is not 0."""

    counter: str
    count: str
    body: Operations
    until: str | None = None


@dataclass(frozen=True)
class Choose:
    """Operations that run if a counter is not 0; `otherwise` runs if it is."""

    counter: str
    body: Operations
    otherwise: Operations = ()


@dataclass(frozen=True)
class Listed:
    """Row operations on a list of rows: `find` fills the list and returns its length."""

    find: str
    body: Operations


@dataclass(frozen=True)
class Timed:
    """Operations timed in some turns only, because reading the clock each time would take too long."""

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
    """Run operations under a condition that is evaluated when the iteration runs."""
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
    """Return the operations if a condition known when the iteration is built holds, else none."""
    return body if condition else ()


def walk(operations: Operations) -> Iterator[Operation]:
    """Yield all operations, outer ones before those within them."""
    for one in operations:
        yield one
        if isinstance(one, Choose):
            yield from walk(one.body + one.otherwise)
        elif isinstance(one, Loop | Listed | Timed | Phase):
            yield from walk(one.body)
