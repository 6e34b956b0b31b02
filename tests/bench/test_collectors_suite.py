"""The benchmarks of collectors: that waiting is told from working, and that each contestant does what its name says."""

import os
import subprocess
import sys
import time

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import QUICK
from velocirl.bench.suite.training import collectors
from velocirl.vector.host import worker_handle

accounts = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system keeps no such accounts")  # noqa: PTH110


@accounts
@pytest.mark.parametrize(("does", "low", "high"), [("time.sleep(30)", 0.0, 0.2), ("while True: pass", 0.8, 1.05)])
def test_the_system_tells_who_waits_from_who_works_or_would(does, low, high):
    with subprocess.Popen([sys.executable, "-c", f"import time\nprint(flush=True)\n{does}"], stdout=-1) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.1)
            before, began = collectors._busy(child.pid), time.perf_counter_ns()
            time.sleep(0.4)
            busy, seconds = collectors._busy(child.pid) - before, time.perf_counter_ns() - began
        finally:
            child.kill()
    assert low <= busy / seconds <= high


@pytest.mark.parametrize("size", [64, 1024])
def test_a_full_ring_is_emptied_into_the_memory(size, monkeypatch):
    sizes = []
    gather = collectors.gather
    monkeypatch.setattr(
        collectors, "gather", lambda ring, rounds, first: sizes.append(rounds) or gather(ring, rounds, first)
    )
    collectors.consolidating(size).call()
    assert sizes == [size] * (collectors.WAITING_ROUNDS // size)


def test_threads_are_limited_again_and_not_measured_where_somebody_has_limited_them(monkeypatch):
    before = dict(worker_handle.ONE_THREAD)
    for name in before:
        monkeypatch.delenv(name, raising=False)
    with collectors.as_many_threads_as_cores():
        assert not worker_handle.ONE_THREAD
    assert before == worker_handle.ONE_THREAD
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    with pytest.raises(UnavailableError, match="MKL_NUM_THREADS is set"), collectors.as_many_threads_as_cores():
        pass


def test_what_is_asked_of_collectors():
    assert [(one.of, one.at_most) for one in collectors.collectors_wait().claims] == [
        ("by the system", 1.0), ("by their own counts", 1.0),
    ]  # fmt: skip
    assert [(one.of, one.to) for one in collectors.collected_batches().claims] == [
        ("batches of 1,024", "batches of 1"), ("batches of 1,024", "batches of 64"),
    ]  # fmt: skip


@accounts
@pytest.mark.slow
def test_free_collectors_are_watched_while_they_collect(monkeypatch):
    monkeypatch.setattr(collectors, "WATCHED_STEPS", 8192)
    monkeypatch.setattr(collectors, "require_cores", lambda _: None)
    watched = collectors.waiting(collectors.neither_running_nor_ready)
    watched.prepare(QUICK)
    try:
        assert 0.0 <= watched.sample() < 50.0
    finally:
        watched.close()


@pytest.mark.slow
def test_environments_that_multiply_are_learnt_from(monkeypatch):
    monkeypatch.setattr(collectors, "require_cores", lambda _: None)
    timed = collectors.multiplying(one_thread=True)
    try:
        assert timed.sample() > 0.0
    finally:
        timed.close()
