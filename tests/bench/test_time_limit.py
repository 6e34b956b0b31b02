import contextlib
import signal
import threading
import time

import pytest

from velocirl.bench.time_limit import OutOfTime, time_limit


def test_it_ends_what_takes_longer_and_nothing_that_catches_errors_keeps_it():
    before, start = signal.getsignal(signal.SIGALRM), time.perf_counter()
    with pytest.raises(OutOfTime), time_limit(0.05), contextlib.suppress(Exception):  # as a benchmark may
        time.sleep(10.0)
    assert time.perf_counter() - start < 5.0
    assert signal.getsignal(signal.SIGALRM) is before


def test_what_is_done_in_time_hears_nothing_of_it():
    with time_limit(0.05):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with time_limit(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_have_none():
    done = []

    def work():
        with time_limit(0.01):
            time.sleep(0.05)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
