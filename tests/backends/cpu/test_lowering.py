"""Lowering: every row passes through the same operations in the same order as if the iteration ran as it is written."""

import numpy as np
from hypothesis import given, settings
from iterations import COUNT, COUNTS, MARKED, Interpreted, iterations

from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.counters import WHOLE, allocate
from velocirl.engine.compiler.units import bind_unit
from velocirl.networks.mlp import ROWS
from velocirl.program.counting.phases import LAST_VALUES, PLACES_OF_TIME, POLICY, ROUND
from velocirl.program.iteration import (
    Advance,
    Listed,
    Once,
    Rows,
    choose,
    loop,
    once,
    phase,
    rows,
    timed,
    walk,
)

RESULTS = np.array([0, 1, 0, 0, 2], np.int64)  # of what is called once, in turn


def note(arguments, first, stop, place):
    """Write down a call; returns the next result, or of a list the number of its rows."""
    trace, filled, number, results, marked, finds = arguments
    at = filled[0]
    filled[0] += 1
    trace[at, 0], trace[at, 1], trace[at, 2], trace[at, 3] = number, first, stop, place
    if finds:
        found = 0
        for row in range(first, stop):
            found += 1 if marked[row] else 0
        return found
    filled[1] += 1
    return results[filled[1] % len(results)]


class Lowered:
    """An iteration whose units write down what they are called with."""

    def __init__(self, operations, *, native=True):
        self.trace, self.filled = np.zeros((20_000, 4), np.int64), np.zeros(2, np.int64)
        self.names, units = [], {}
        self.inside = {inner.name for one in walk(operations) if isinstance(one, Listed) for inner in walk(one.body)}
        self.once = {one.name: len(one.reads) for one in walk(operations) if isinstance(one, Once)}
        for one in walk(operations):
            if isinstance(one, Rows | Once) or (isinstance(one, Advance) and native):
                units[one.name] = self._unit(one.name)
            elif isinstance(one, Listed):
                units[one.find] = self._unit(one.find, finds=True)
        self.counters = allocate(1)[0]
        self.iteration = Iteration(operations, units, PLACES_OF_TIME, self.counters, *blocks_of_rows(COUNT), **COUNTS)

    def _unit(self, name, *, finds=False):
        self.names.append(name)
        results = RESULTS if name in self.once else np.zeros(1, np.int64)
        arguments = self.trace, self.filled, len(self.names) - 1, results, MARKED, int(finds)
        return bind_unit(note, arguments, learning_translator("test"), disjoint=False)

    def events(self):
        """What each row went through, with the time step, or what something done once was called with."""
        found, listed_rows = [[] for _ in range(COUNT)], []
        for number, *called in self.trace[: self.filled[0]].tolist():
            name, (first, stop, place) = self.names[number], called
            if name.startswith("find"):
                listed_rows = [row for row in range(first, stop) if MARKED[row]]
            elif name in self.once:
                for events in found:
                    events.append((name, *called[: self.once[name]]))
            else:
                for index in range(first, stop):
                    found[listed_rows[index] if name in self.inside else index].append((name, place))
        return found


def test_rows_go_block_by_block_through_all_time_steps():
    steps = loop("t", "three", rows("see", "t"), Advance(), rows("settle", "t"))
    lowered = Lowered((steps, rows("value"), once("learn", "three")))
    assert lowered.iteration.start(0, 0) == 0
    assert lowered.events() == Interpreted().run((steps, rows("value"), once("learn", "three"))).events
    first_block = lowered.trace[: 3 * 3 + 1]
    assert (first_block[:, 2] - first_block[:, 1] == ROWS).all()  # only then the second block begins
    assert lowered.filled[0] == 2 * (3 * 3 + 1) + 1


def test_python_steps_environments_that_are_not_compiled():
    lowered = Lowered((loop("t", "three", rows("act", "t"), Advance(), rows("settle", "t")),), native=False)
    turns = 0
    waits = lowered.iteration.start(0, 0)
    while waits:
        assert lowered.iteration.waits
        assert lowered.filled[0] == 2 * (2 * turns + 1)  # two blocks each; all have acted, and nothing more
        turns += 1
        waits = lowered.iteration.resume(0, 0)
    assert turns == 3
    assert not lowered.iteration.waits
    assert lowered.events() == [[(name, t) for t in range(3) for name in ("act", "settle")]] * COUNT


def test_a_loop_ends_where_a_result_says_so():
    operations = (loop("update", "three", once("learn", "update"), once("failed", into="failed"), until="failed"),)
    lowered = Lowered(operations)
    lowered.iteration.start(0, 0)
    assert lowered.events()[0] == [("learn", 0), ("failed",), ("learn", 1), ("failed",)]  # results 1, 0, 0 and 2
    assert lowered.iteration["failed"] != 0


def test_conditions_are_looked_at_each_time():
    operations = (
        loop("t", "three", once("flip", into="random"), choose("random", (rows("guess"),), (rows("forward"),))),
    )
    lowered = Lowered(operations)
    lowered.iteration.start(0, 0)
    taken = [event[0] for event in lowered.events()[0] if event[0] != "flip"]
    assert taken == ["guess", "guess", "forward"]  # results 1, 4 and 7 in turn, as blocks take some too


def test_phases_are_timed():
    body = timed("round", phase("policy", rows("act")), phase("environment", Advance()))
    lowered = Lowered((loop("t", "three", body), phase("last_values", rows("value"))))
    lowered.iteration.start(0, 0)
    counters = lowered.counters
    assert counters[ROUND] == 2 * 3  # of two blocks
    assert 0 < counters[POLICY] < counters[WHOLE]
    assert 0 < counters[LAST_VALUES] < counters[WHOLE]


@settings(max_examples=60, deadline=None)
@given(iterations())
def test_any_iteration_is_what_it_says(operations):
    lowered, expected = Lowered(operations), Interpreted().run(operations).events
    lowered.iteration.start(0, 0)
    assert lowered.events() == expected
    lowered.filled[:] = 0
    lowered.iteration.start(0, 0)  # and so it is the second time
    assert lowered.events() == expected
