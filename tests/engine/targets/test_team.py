"""Thread teams: every item is done once, whoever runs it; faults are raised; helpers that are late delay nobody."""

import os
import threading
import time

import numpy as np
import pytest

from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets import team as team_module
from velocirl.engine.targets.team import HELPERS, ITEMS, LINGER, PRESENT, RUNNING, SPACING, Team

THREADS, COUNT = 3, 200


def add_one(arguments, first, stop, place):
    numbers, broken = arguments
    for i in range(first, stop):
        if i == broken[0]:
            raise ArithmeticError("broken")
        numbers[i] += 1 + place
    return 0


def set_to(arguments, first, stop, place):
    for i in range(first, stop):
        arguments[0][i] = place
    return 0


def double(arguments, first, stop, place):
    for i in range(first, stop):
        arguments[0][i] *= 2
    return 0


def claim(arguments, item, argument, worker):
    by, numbers = arguments
    by[item] = worker
    numbers[item] += argument
    return 0


@pytest.fixture
def numbers():
    return np.zeros(COUNT, np.int64)


@pytest.fixture
def broken():
    """The index at which the work fails."""
    return np.array([-1])


@pytest.fixture
def unit(numbers, broken):
    return bind_unit(add_one, (numbers, broken), cpu_translator("test", double=True))


@pytest.fixture
def team():
    return Team(THREADS)


@pytest.fixture
def work(team, unit):
    return team.ranges([unit], COUNT)


def present(team):
    return [int(team._board[HELPERS + helper * SPACING + PRESENT]) for helper in range(1, team.threads)]


def left(team):
    deadline = time.monotonic() + 30
    while any(present(team)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not any(present(team))


def always(monkeypatch, workers):
    """Let so many workers work, whatever the tuner finds."""
    monkeypatch.setattr(team_module, "ladder_of", lambda threads: [min(workers, threads)] * 2)


def test_every_index_is_done_once_before_it_returns(monkeypatch, team, unit, numbers):
    always(monkeypatch, THREADS)
    work = team.ranges([unit], COUNT)
    for number in range(1, 2001):
        work(0)
        assert (numbers == number).all()


def test_units_follow_each_other_in_each_range(team, numbers):
    translator = cpu_translator("test", double=True)
    units = [bind_unit(one, (numbers,), translator) for one in (set_to, double)]
    for _ in range(100):
        team.ranges(units, COUNT)(3)
    assert (numbers == 6).all()


def test_the_place_reaches_the_unit(work, numbers):
    work(4)
    assert (numbers == 5).all()


def test_several_threads_claim_items(monkeypatch, team):
    always(monkeypatch, THREADS)
    by, numbers = np.zeros(8, np.int64), np.zeros(8, np.int64)
    tuner, translator = team.tuner(8), cpu_translator("test", double=True)
    region = team.region(tuner, [bind_unit(claim, (by, numbers), translator)])
    seen, deadline = set(), time.monotonic() + 30
    while len(seen) < 2 and time.monotonic() < deadline:
        team.run(region, tuner, 8, 1)
        seen |= set(by.tolist())
    assert len(seen) >= 2
    assert len(set(numbers.tolist())) == 1


def test_a_helper_that_never_comes_delays_nobody(monkeypatch, unit, numbers):
    """As where another program has its core for seconds."""
    always(monkeypatch, THREADS)
    monkeypatch.setattr(team_module, "send", lambda *arguments: None)
    work = Team(THREADS).ranges([unit], COUNT)
    began = time.monotonic()
    for _ in range(100):
        work(0)
    assert (numbers == 100).all()
    assert time.monotonic() - began < 5


def test_one_thread_needs_no_helper(unit, numbers, monkeypatch):
    monkeypatch.setattr(team_module, "send", None)
    Team(1).ranges([unit], COUNT)(0)
    assert (numbers == 1).all()


def test_one_item_needs_no_helper(unit, numbers, monkeypatch):
    monkeypatch.setattr(team_module, "send", None)
    Team(THREADS).ranges([unit], 1)(0)
    assert numbers[0] == 1
    assert (numbers[1:] == 0).all()


def test_only_helpers_that_the_next_trial_may_want_are_called(monkeypatch):
    """Two items keep two workers busy: six helpers of a team of eight sleep on, and leave their cores to others."""
    called = []
    monkeypatch.setattr(team_module, "send", lambda helper, *arguments: called.append(helper))
    team, translator = Team(8), cpu_translator("test", double=True)
    tuner = team.tuner(2)
    unit = bind_unit(claim, (np.zeros(8, np.int64), np.zeros(8, np.int64)), translator)
    team.run(team.region(tuner, [unit]), tuner, 2, 1)
    assert called == [0]


def test_helpers_leave_after_a_while_and_come_back(monkeypatch, team, unit, numbers):
    always(monkeypatch, THREADS)
    work = team.ranges([unit], COUNT)
    for number in range(1, 4):
        work(0)
        assert left(team)
        assert (numbers == number).all()
    assert LINGER <= 10**7  # nanoseconds


def test_helpers_leave_at_once_for_another_team(monkeypatch, unit, numbers):
    """They serve all teams of the process, and stay for a while with the one that had them last."""
    always(monkeypatch, 2)
    monkeypatch.setattr(team_module, "LINGER", 0)
    first, second = Team(2), Team(2)
    works = [first.ranges([unit], COUNT), second.ranges([unit], COUNT)]
    for number in range(1, 201):
        works[number % 2](0)
        assert (numbers == number).all()
    assert left(first)
    assert left(second)


@pytest.mark.parametrize("at", [0, 70, 199])
def test_what_fails_in_any_item_is_raised_and_the_next_run_is_whole(monkeypatch, team, unit, numbers, broken, at):
    always(monkeypatch, THREADS)
    work = team.ranges([unit], COUNT)
    for _ in range(50):
        work(0)
        broken[0] = at
        with pytest.raises(ArithmeticError, match="broken"):
            work(0)
        broken[0] = -1
        before = numbers.copy()
        work(0)
        np.testing.assert_array_equal(numbers, before + 1)


def test_an_interrupt_while_helpers_are_called_leaves_nothing_running(monkeypatch, team, unit, numbers):
    always(monkeypatch, THREADS)
    work = team.ranges([unit], COUNT)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(team_module, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            work(0)
    assert not any(present(team))
    assert team._board[RUNNING] == 0
    before = numbers.copy()
    work(0)
    np.testing.assert_array_equal(numbers, before + 1)


def test_whoever_waits_lets_python_run(work, numbers):
    """Helpers hold no GIL."""
    counted, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    ticking = threading.Thread(target=tick)
    ticking.start()
    for _ in range(200):
        work(0)
    stop.set()
    ticking.join()
    assert (numbers == 200).all()
    assert counted[0] > 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_has_helpers_of_its_own(monkeypatch, team, unit, numbers):
    always(monkeypatch, THREADS)
    work = team.ranges([unit], COUNT)
    work(0)
    child = os.fork()
    if child == 0:
        work(0)
        os._exit(0 if (numbers == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    work(0)
    assert (numbers == 2).all()


def test_board_lines_do_not_overlap(team):
    """Each item and each helper has a cache line of its own."""
    assert HELPERS >= ITEMS + SPACING * team_module.MAX_ITEMS
    assert len(team._board) == HELPERS + SPACING * (THREADS + 1)
