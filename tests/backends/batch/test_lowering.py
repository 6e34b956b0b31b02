"""Lowering to whole batches: adjacent row functions are one launch, and rows go through all that is written."""

import pytest
from hypothesis import given, settings
from iterations import COUNT, COUNTS, MARKED, Interpreted, iterations

from velocirl.backends.batch.lowering import Iteration, begun_early
from velocirl.engine.targets.launching import PythonLauncher, Work
from velocirl.program.iteration import Advance, Listed, Once, Rows, loop, once, rows, walk
from velocirl.program.rollout import rollout


class Lowered:
    """An iteration whose row functions write down what each row went through."""

    def __init__(self, operations, *, python=(), shifted=None):
        """Operations named by `python` are calls; `shifted` is the name of one whose function is of the step after."""
        self.events = [[] for _ in range(COUNT)]
        self.launches = []
        bound = {}
        for one in walk(operations):
            if isinstance(one, Listed):
                bound[one.find] = [lambda _, inner=one.body: self.go_through(inner)]
            elif isinstance(one, Once):
                bound[one.name] = [lambda *read, name=one.name: self.note_all((name, *read))]
            elif isinstance(one, Rows | Advance) and one.name in python:
                bound[one.name] = [lambda t, name=one.name: self.note_all((name, t))]
            elif isinstance(one, Rows | Advance):
                timeless = isinstance(one, Advance)
                bound[one.name] = [Work(self.note, (one.name, timeless, one.name == shifted))]
        self.iteration = Iteration(operations, bound, self.launch, **COUNTS, horizon=3)

    def note(self, i, r, t, name, timeless, shifted):
        if shifted:
            self.events[i].append((name.removesuffix("_next"), t + 1))
        else:
            self.events[i].append((name, 0 if timeless else t))

    def note_all(self, event):
        for events in self.events:
            events.append(event)

    def go_through(self, inner):
        for one in inner:
            for row in range(COUNT):
                if MARKED[row]:
                    self.events[row].append((one.name, 0))

    def launch(self, works):
        self.launches.append([work.arguments[0] for work in works])
        return PythonLauncher().launch(works, COUNT)


@settings(max_examples=60, deadline=None)
@given(iterations())
def test_any_iteration_is_what_it_says(operations):
    lowered = Lowered(operations)
    lowered.iteration.run()
    assert lowered.events == Interpreted().run(operations).events


def test_adjacent_row_functions_are_one_launch():
    lowered = Lowered(
        (loop("t", "three", rows("see", "t"), rows("forward", "t"), rows("act", "t"), Advance(), rows("settle", "t")),),
        python=("forward",),
    )
    assert lowered.launches == [["see"], ["act", "advance", "settle"]]
    lowered.iteration.run()
    assert lowered.events[5] == [
        event
        for t in range(3)
        for event in (("see", t), ("forward", t), ("act", t), ("advance", 0), ("settle", t))
    ]  # fmt: skip


def test_what_a_turn_begins_with_ends_the_turn_before():
    operations = rollout(masked=True, normalizes=True, recurrent=True)
    python = "forward", "evaluate"
    plain, early = Lowered(operations, python=python), begun_early(operations, "see", "see_next")
    turned = Lowered(early, python=python, shifted="see_next")
    plain.iteration.run()
    turned.iteration.run()
    assert turned.events == plain.events
    assert turned.launches[0] == ["begin_rollout", "see"]
    assert turned.launches[1][-2:] == ["forget", "see_next"]  # a step of all rows is a network's pass and one launch
    assert (len(turned.launches), len(plain.launches)) == (3, 5)


def test_a_loop_that_goes_on_otherwise_cannot_begin_early():
    with pytest.raises(ValueError, match="what follows it do not begin with 'see'"):
        begun_early((loop("t", "three", rows("see", "t")), once("learn")), "see", "see_next")
