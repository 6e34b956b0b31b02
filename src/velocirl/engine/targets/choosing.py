"""One thread or several: whichever takes less time for the same work, found out by trying both now and then."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

Run = Callable[[], None]
CALLS, BLOCKS = 8, 3  # of each in a row, of which the first does not count, and how often they take turns
TRIAL = 2 * CALLS * BLOCKS
REST = 40 * TRIAL  # calls between two trials: other programs come and go
WORTH = 20_000  # nanoseconds: what takes less is not handed to other threads, which would have to be woken
GAIN = 0.9  # several threads must take less than this share of the time: they take cores from somebody else


class Faster:
    """Called like the work itself, of which both ways have the same result.

    Where the work is too small for several threads, the one way that is left is given back, so that whoever calls can
    do without asking.
    """

    def __init__(self, alone: Run, together: Callable[[], Run]) -> None:
        self._ways: list[Run] = [alone]
        self._together = together
        self._taken: tuple[list[int], list[int]] = [], []
        self._chosen, self._call = alone, 0

    def __call__(self) -> Run | None:
        """Do the work; where there is nothing to choose any more, give what does it."""
        call = self._call
        self._call = 0 if call == TRIAL + REST else call + 1
        if call >= TRIAL:
            self._chosen()
            return None
        block, place = divmod(call, CALLS)
        way = block % 2
        if way == len(self._ways):
            if min(self._taken[0]) < WORTH:
                self._chosen()
                return self._chosen
            self._ways.append(self._together())
        began = perf_counter_ns()
        self._ways[way]()
        if place:
            self._taken[way].append(perf_counter_ns() - began)
        if call == TRIAL - 1:
            alone, together = map(median, self._taken)
            self._chosen = self._ways[together < GAIN * alone]
            self._taken = [], []
        return None
