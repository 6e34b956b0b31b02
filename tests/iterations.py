"""An oracle for iterations: operations as they are written, and iterations of any shape to compare with it."""

import numpy as np
from hypothesis import strategies as st

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
)

COUNTS = {"three": 3, "one": 1, "none": 0}
COUNT = ROWS + 6  # rows: two blocks
MARKED = np.arange(COUNT) % 3 == 1  # those that a list has


class Interpreted:
    """The oracle: operations as they are written, each for all rows."""

    def __init__(self):
        self.counters = {"zero": 0, **COUNTS}
        self.events = [[] for _ in range(COUNT)]
        self.active = range(COUNT)

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


def iterations():
    """Lists of operations of any shape."""
    inner = st.recursive(leaves, around, max_leaves=8)
    return st.lists(inner, min_size=1, max_size=3).filter(counts_apart).map(tuple)
