"""The thread autotuner in plain Python, with a machine that is made up: how long work takes with how many workers."""

import numpy as np
import pytest

from velocirl.engine.targets import autotuner
from velocirl.engine.targets.autotuner import LONG_PAUSE, TUNER, begin_tuner, ladder_of, tune

SECOND = 10**9


class Machine:
    """Work of 400 us for one worker; `cost(workers)` says what share of that it takes."""

    def __init__(self, monkeypatch, threads, cost):
        self.moment, self.cost = 0, cost
        monkeypatch.setattr(autotuner, "now", lambda: self.moment)
        self.tuner = np.zeros(1, TUNER).view(np.recarray)[0]
        begin_tuner(self.tuner, ladder_of(threads))

    def run(self, seconds):
        """Returns the mean share of the time of one worker."""
        stop, began, units = self.moment + int(seconds * SECOND), self.moment, 0
        while self.moment < stop:
            since = self.moment
            self.moment += int(400_000 * self.cost(int(self.tuner.workers)))
            tune(self.tuner, since, 1)
            units += 1
        return (self.moment - began) / (400_000 * units)


def ideal(workers):
    return 1 / workers


def crowded(workers):
    """Another program has a core: whoever waits for all threads waits for its time slices."""
    return 1.0 if workers == 1 else 12.0


def best_at_four(workers):
    return 1 / workers if workers <= 4 else 0.25 * workers / 4


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_all_workers_work_where_they_gain(monkeypatch, threads):
    machine = Machine(monkeypatch, threads, ideal)
    machine.run(1)
    assert machine.tuner.ladder[machine.tuner.level] == threads
    assert machine.run(2) < 1.05 / threads  # trials of fewer cost little


@pytest.mark.parametrize("threads", [2, 16])
def test_one_works_where_others_only_delay_it(monkeypatch, threads):
    machine = Machine(monkeypatch, threads, crowded)
    machine.run(2)
    assert machine.tuner.workers == 1
    assert machine.run(10) < 1.03


def test_the_best_number_is_found(monkeypatch):
    machine = Machine(monkeypatch, 16, best_at_four)
    machine.run(3)
    assert machine.run(4) < 0.25 / 0.95


def test_neighbours_that_come_and_go_are_followed(monkeypatch):
    machine = Machine(monkeypatch, 2, ideal)
    machine.run(5)
    machine.cost = crowded
    assert machine.run(0.5) < 1.5  # noticed within milliseconds
    machine.run(20)
    machine.cost = ideal
    machine.run(1.5 * LONG_PAUSE / SECOND)
    assert machine.run(1) < 0.55


def test_one_slow_window_is_chance(monkeypatch):
    machine = Machine(monkeypatch, 2, ideal)
    machine.run(0.005)
    machine.cost = crowded
    machine.run(0.0012)
    machine.cost = ideal
    machine.run(0.002)
    assert machine.tuner.workers == 2


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 16, 100, 1000])
def test_ladders(threads):
    ladder = ladder_of(threads)
    assert ladder == sorted(set(ladder))
    assert ladder[-1] == threads
    assert len(ladder) <= autotuner.MAX_LEVELS
    assert threads > 100 or ladder[0] == 1
