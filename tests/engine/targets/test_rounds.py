"""Rounds of work on threads that stay awake between them: each is done once, whole, and its faults are told."""

import os
import threading
import time

import numpy as np
import pytest

from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets import rounds
from velocirl.engine.targets.rounds import AWAKE, DONE, PATIENCE, WANTED, Rounds

RANGES = [(0, 3), (3, 5), (5, 10)]


def count(arguments, first, stop, place):
    numbers, broken = arguments
    for i in range(first, stop):
        if i == broken[0]:
            raise ArithmeticError("broken")
        numbers[i] += 1
    return 0


@pytest.fixture
def numbers():
    return np.zeros(10, np.int64)


@pytest.fixture
def broken():
    """The index at which the work fails."""
    return np.array([-1])


@pytest.fixture
def work(numbers, broken):
    return Rounds(bind_unit(count, (numbers, broken), cpu_translator("test", double=True)), RANGES)


def mailboxes(work):
    return [mailbox for _, mailbox, _ in work._others]


def asleep(work):
    deadline = time.monotonic() + 30
    while any(mailbox[AWAKE] for mailbox in mailboxes(work)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not any(mailbox[AWAKE] for mailbox in mailboxes(work))


def test_every_round_is_done_by_all_before_it_returns(work, numbers):
    for number in range(1, 2001):
        work.run()
        assert (numbers == number).all()
    assert [(mailbox[WANTED], mailbox[DONE]) for mailbox in mailboxes(work)] == [(2000, 2000)] * 2


def test_threads_that_wait_in_vain_go_to_sleep_and_are_woken_again(work, numbers):
    for number in range(1, 4):
        work.run()
        assert asleep(work)
        assert (numbers == number).all()


def test_a_round_of_one_share_needs_no_thread(numbers, broken, monkeypatch):
    monkeypatch.setattr(rounds, "send", None)
    Rounds(bind_unit(count, (numbers, broken), cpu_translator("test", double=True)), [(0, 10)]).run()
    assert (numbers == 1).all()


@pytest.mark.parametrize("at", [1, 4, 7])
def test_what_fails_in_any_share_is_raised_and_the_next_round_is_whole(work, numbers, broken, at):
    work.run()
    broken[0] = at
    with pytest.raises(ArithmeticError, match="broken"):
        work.run()
    broken[0] = -1
    before = numbers.copy()
    work.run()
    np.testing.assert_array_equal(numbers, before + 1)


def test_whoever_waits_lets_python_run(work, numbers):
    """Threads that watch their mailboxes hold no GIL."""
    work.run()
    counted, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    ticking = threading.Thread(target=tick)
    ticking.start()
    for _ in range(200):
        work.run()
    stop.set()
    ticking.join()
    assert (numbers == 201).all()
    assert counted[0] > 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_a_fork_others_are_woken(work, numbers):
    work.run()
    child = os.fork()
    if child == 0:
        work.run()
        os._exit(0 if (numbers == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    work.run()
    assert (numbers == 2).all()


def test_patience_is_short():
    assert 0 < PATIENCE <= 100_000
