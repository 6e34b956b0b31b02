"""One thread or several: the faster one is found, and found again when it has changed."""

import pytest

from velocirl.engine.targets import choosing
from velocirl.engine.targets.choosing import REST, TRIAL, Faster


class Clock:
    """Time that passes only where somebody works."""

    now = 0

    def worker(self, nanoseconds):
        def run():
            self.now += nanoseconds[0]
            self.calls[run] = self.calls.get(run, 0) + 1

        return run

    def __init__(self):
        self.calls = {}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(choosing, "perf_counter_ns", lambda: clock.now)
    return clock


@pytest.mark.parametrize(("alone_takes", "together_takes", "wins"), [(100_000, 60_000, 1), (100_000, 95_000, 0)])
def test_the_faster_way_is_taken(clock, alone_takes, together_takes, wins):
    ways = [clock.worker([alone_takes]), clock.worker([together_takes])]
    faster = Faster(ways[0], lambda: ways[1])
    for _ in range(TRIAL + 100):
        assert faster() is None  # there is a choice
    assert clock.calls[ways[wins]] == TRIAL // 2 + 100
    assert clock.calls[ways[1 - wins]] == TRIAL // 2


def test_small_work_stays_in_one_thread_without_asking(clock):
    alone = clock.worker([5_000])
    way = Faster(alone, lambda: pytest.fail("no thread is woken"))
    for _ in range(20):
        way = way() or way
    assert way is alone
    assert clock.calls[alone] == 20


def test_it_looks_again_after_a_while(clock):
    takes = [50_000]
    alone, together = clock.worker([100_000]), clock.worker(takes)
    faster = Faster(alone, lambda: together)
    for _ in range(TRIAL + 1):
        faster()
    takes[0] = 300_000  # somebody else needs the core now
    for _ in range(REST + TRIAL):
        faster()
    before = clock.calls[alone]
    for _ in range(10):
        faster()
    assert clock.calls[alone] == before + 10
