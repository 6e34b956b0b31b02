"""Counters: what they say of work whose length is known, compiled and in plain Python, timed always or now and then."""

import time

import numpy as np
import pytest

from velocirl.engine.compiler import counters
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.engine.compiler.counters import ALWAYS, FIRST_KIND, PLACES, ROW, SECOND_KIND, WHOLE, Count

SHORT, LONG, LAST = range(PLACES, PLACES + 3)
ROUNDS = 40
COUNTS = Count("short", SHORT, FIRST_KIND), Count("long", LONG, FIRST_KIND), Count("last", LAST, ALWAYS)


def wait(nanoseconds):
    end = now() + nanoseconds
    while now() < end:
        pass


def work(row, rounds, every, unit):
    """Rounds of 1 and 3 units, and 50 at the end."""
    begun = counters.glance(True)
    for _ in range(rounds):
        timed = counters.turn(row, FIRST_KIND, every)
        since = counters.start(row, FIRST_KIND, timed)
        wait(unit)
        since = counters.lap(row, SHORT, since, timed)
        wait(3 * unit)
        counters.lap(row, LONG, since, timed)
    since = counters.glance(True)
    wait(50 * unit)
    counters.lap(row, LAST, since, True)
    counters.lap(row, WHOLE, begun, True)


def compiled():
    row = counters.allocate(1)[0]
    return compile_loop(work, (row, 1, 1, 1), learning_translator("counters"), before=lambda: None)


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("how", ["compiled", "plain"])
def test_known_work_is_told_apart(how, every):
    run, unit, fewest = (compiled(), 2_000, np.inf) if how == "compiled" else (work, 20_000, np.inf)
    least = (4 * ROUNDS + 50) * unit * 1e-9
    for _ in range(100):  # the quietest counts: another program may take the core for some milliseconds
        row = counters.allocate(1)[0]
        start = time.perf_counter()
        run(row, ROUNDS, every, unit)
        elapsed = time.perf_counter() - start
        assert row[FIRST_KIND] == ROUNDS
        assert row[FIRST_KIND + 1] == -(-ROUNDS // every)
        if elapsed < fewest:
            fewest, quietest = elapsed, row
    found = counters.read([quietest], COUNTS)
    assert found["last"] >= 50 * unit * 1e-9
    assert sum(found.values()) == pytest.approx(quietest[WHOLE] * 1e-9)
    assert least <= sum(found.values()) <= fewest
    assert found["long"] / found["short"] == pytest.approx(3, rel=0.15)


def row_of(**places):
    row = counters.allocate(1)[0]
    names = {"whole": WHOLE, "short": SHORT, "long": LONG, "last": LAST}
    for name, value in places.items():
        row[names[name]] = value
    return row


def test_turns_that_were_timed_stand_for_all_others():
    """10 turns, 2 timed: of 100 ns each, 10 of which are the clock's own; the last 500 ns are as they are."""
    row = row_of(short=60, long=140, last=500, whole=1500)
    row[FIRST_KIND : FIRST_KIND + 3] = 10, 2, 20
    assert counters.read([row], COUNTS) == pytest.approx({"short": 250e-9, "long": 750e-9, "last": 500e-9})


def test_kinds_of_turns_are_scaled_each_by_its_own():
    counts = Count("first", SHORT, FIRST_KIND), Count("second", LONG, SECOND_KIND)
    row = row_of(short=100, long=100, whole=800)
    row[[FIRST_KIND, FIRST_KIND + 1]], row[[SECOND_KIND, SECOND_KIND + 1]] = (10, 10), (70, 10)
    assert counters.read([row], counts) == pytest.approx({"first": 100e-9, "second": 700e-9})


def test_places_of_one_name_are_added_and_threads_that_counted_averaged():
    counts = Count("all", SHORT, ALWAYS), Count("all", LONG, ALWAYS)
    rows = [row_of(short=100, long=200), row_of(short=300, long=400), row_of()]
    assert counters.read(rows, counts) == pytest.approx({"all": 500e-9})


def test_nothing_was_counted():
    assert counters.read([row_of()], COUNTS) == {}
    assert counters.read([], COUNTS) == {}


def test_rows_begin_anew():
    rows = counters.allocate(3)
    rows += 1
    counters.clear(rows)
    assert not rows.any()


def test_no_two_threads_write_to_one_line_of_the_cache():
    """64 bytes: 8 whole numbers are free before the first that is written, and after the last."""
    row = counters.allocate(2)[1]
    assert FIRST_KIND == 8
    assert max(PLACES + 16, LAST) <= ROW - 8
    assert row.nbytes == ROW * 8


def test_without_counting_no_clock_is_read(monkeypatch):
    monkeypatch.setattr(counters, "COUNTING", False)
    monkeypatch.setattr(counters, "now", lambda: pytest.fail("looked at the clock"))
    row = counters.allocate(1)[0]
    work(row, 2, 1, 0)
    assert not row.any()


@pytest.mark.parametrize("counting", [True, False])
def test_a_meter_waits_until_it_is_worth_reading(counting, monkeypatch):
    monkeypatch.setattr(counters, "COUNTING", counting)
    phases, folded = {}, []

    def fold(seconds):
        folded.append(seconds)
        phases["rollout"] = phases.get("rollout", 0.0) + seconds

    meter, some = counters.Meter(phases, "rollout", fold), 0.4 * counters.PATIENCE
    for _ in range(5):
        meter.add(some)
    assert folded == ([some, pytest.approx(3 * some)] if counting else [])
    meter.fold()
    meter.fold()
    assert sum(folded) == pytest.approx(5 * some if counting else 0)
    phases.clear()  # learning begins anew
    meter.add(0.01)
    assert phases == ({"rollout": 0.01} if counting else {})
