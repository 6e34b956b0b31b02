"""Ranks that are threads of this process: what learners and agents are handed, without a launcher."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from velocirl.scale.watched import WatchedRanks
from velocirl.training.ranks import Company


class ThreadRank:
    """One of several threads that add up arrays, in the order of their ranks."""

    def __init__(self, rank, size, barrier, room):
        self.rank, self.size, self._barrier, self._room = rank, size, barrier, room
        self.sums = 0

    def sum(self, array):
        total = None
        for one in self._told(array):
            total = one.copy() if total is None else total + one
        self._barrier.wait()
        array[...] = total
        self.sums += 1

    def broadcast(self, data):
        found = self._told(data)[0]
        self._barrier.wait()
        return found

    def gather(self, data):
        found = list(self._told(data))
        self._barrier.wait()
        return [] if self.rank else found

    def assemble(self, seconds):
        self._barrier.wait()

    def open_channel(self):
        """Threads are watched by the barrier."""

    def abort(self, code):
        self._barrier.abort()

    def _told(self, said):
        """What all say; nobody says the next thing before all have waited once more."""
        self._room[self.rank] = said
        self._barrier.wait()
        return self._room


def run_ranks(size, run):
    """What `run(reducer)` gives on each of so many ranks."""
    barrier, room = threading.Barrier(size, timeout=60), [np.zeros(0)] * size

    def attempt(rank):
        try:
            return run(ThreadRank(rank, size, barrier, room))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(attempt, range(size)))


def train_on(size, make, work):
    """What `work(agent)` gives on each of so many ranks, of agents that `make()` gives and that they train together."""

    def run(rank):
        agent = make()
        if size > 1:
            agent.__dict__["company"] = Company(agent, WatchedRanks(rank))
        return work(agent)

    if not (one := make()).steps:
        one.prepare()  # processes leave compiling to each other, which threads of one would wait for
    return run_ranks(size, run)
