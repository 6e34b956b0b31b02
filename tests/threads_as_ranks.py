"""Ranks that are threads of this process: what learners are handed, without a launcher."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np


class ThreadRank:
    """One of several threads that add up arrays, in the order of their ranks."""

    def __init__(self, rank, size, barrier, room):
        self.rank, self.size, self._barrier, self._room = rank, size, barrier, room
        self.sums = 0

    def sum(self, array):
        self._room[self.rank] = array
        self._barrier.wait()
        total = self._room[0].copy()
        for other in self._room[1:]:
            total += other
        self._barrier.wait()
        array[...] = total
        self.sums += 1


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
