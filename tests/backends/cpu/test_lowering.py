"""Lowering: every row passes through the same operations in the same order as if the iteration ran as it is written."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.counters import WHOLE, allocate
from velocirl.engine.compiler.units import bind_unit
from velocirl.learners.counting.phases import LAST_VALUES, PLACES_OF_TIME, POLICY, ROUND
from velocirl.networks.mlp import ROWS
from velocirl.program.iteration import (
    Advance,
    Choose,
    Listed,
    Loop,
    Once,
    Phase,
    Rows,
    Timed,
    choose,
    listed,
    loop,
    once,
    phase,
    rows,
    timed,
    walk,
)

COUNTS = {"three": 3, "one": 1, "none": 0}
COUNT = ROWS + 6  # rows: two blocks
MARKED = np.arange(COUNT) % 3 == 1  # those that a list has
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


class Interpreted:
    """The oracle: operations as they are written, each for all rows."""

    def __init__(self):
        self.counters = {"zero": 0, **COUNTS}
        self.events = [[] for _ in range(COUNT)]
        self.results = {}
        self.active = range(COUNT)
        self.calls = 0

    def run(self, operations):
        for one in operations:
            if isinstance(one, Rows | Advance):
                place = self.counters[one.at] if isinstance(one, Rows) else 0
                for row in self.active:
                    self.events[row].append((one.name, place))
            elif isinstance(one, Once):
                self.call(one)
            elif isinstance(one, Loop):
                for turn in range(self.counters[one.count]):
                    self.counters[one.counter] = turn
                    self.run(one.body)
            elif isinstance(one, Choose):
                self.run(one.body if self.counters[one.counter] else one.otherwise)
            elif isinstance(one, Listed):
                self.active = [row for row in range(COUNT) if MARKED[row]]
                self.run(one.body)
                self.active = range(COUNT)
            else:
                assert isinstance(one, Phase | Timed)
                self.run(one.body)
        return self

    def call(self, one):
        read = [self.counters[name] for name in one.reads]
        for events in self.events:
            events.append((one.name, *read))


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


NAMES = st.integers(0, 3)
leaves = st.one_of(
    st.builds(lambda k: rows(f"row {k}"), NAMES),
    st.builds(lambda k: rows(f"row at {k}", "three"), NAMES),
    st.just(Advance()),
    st.builds(lambda k: once(f"once {k}", "one", "three"), NAMES),
    st.builds(lambda k: listed(f"find {k}", rows(f"listed {k}")), NAMES),
)


def around(inner):
    bodies = st.lists(inner, min_size=1, max_size=3)
    counts, others = st.sampled_from([*COUNTS]), st.lists(inner, max_size=2)
    return st.one_of(
        st.builds(lambda count, body: loop(f"t{count}{len(body)}", count, *body), counts, bodies),
        st.builds(lambda count, body, other: choose(count, tuple(body), tuple(other)), counts, bodies, others),
        st.builds(lambda body: phase("policy", *body), bodies),
    )


def counts_apart(operations):
    """Whether no loop counts with the counter of one around it, which would never end."""

    def apart(one, counting):
        name = one.counter if isinstance(one, Loop) else None
        inner = one.body + one.otherwise if isinstance(one, Choose) else getattr(one, "body", ())
        return name not in counting and all(apart(each, counting | ({name} - {None})) for each in inner)

    return all(apart(one, frozenset()) for one in operations)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.recursive(leaves, around, max_leaves=8), min_size=1, max_size=3).filter(counts_apart))
def test_any_iteration_is_what_it_says(operations):
    lowered = Lowered(tuple(operations))
    lowered.iteration.start(0, 0)
    assert lowered.events() == Interpreted().run(tuple(operations)).events
    lowered.filled[:] = 0
    lowered.iteration.start(0, 0)  # and so it is the second time
    assert lowered.events() == Interpreted().run(tuple(operations)).events
