"""A thread that collects: what it and the learner say of their waiting."""

import time

import pytest

from velocirl.backends.batch.overlap.collecting_thread import CollectingThread


def test_who_waits_for_whom_is_measured():
    thread = CollectingThread()
    assert thread.gauges() == {"queue/length": 0.0, "learner/waiting_seconds": 0.0, "collector/waiting_seconds": 0.0}
    began = time.monotonic()
    slow = thread.begin(time.sleep, 0.15)
    assert thread.gauges()["queue/length"] == 0.0
    assert thread.wait(slow) is None  # the learner waits
    waited = time.monotonic() - began
    first = thread.gauges()
    assert 0.1 < first["learner/waiting_seconds"] <= waited
    assert (first["queue/length"], first["collector/waiting_seconds"] < 0.1) == (1.0, True)
    began = time.monotonic()
    time.sleep(0.15)  # the collector waits, for the learner learns
    quick = thread.begin(time.sleep, 0.0)
    thread.wait(quick)
    second = thread.gauges()
    assert 0.15 <= second["collector/waiting_seconds"] <= first["collector/waiting_seconds"] + time.monotonic() - began
    assert second["learner/waiting_seconds"] < first["learner/waiting_seconds"] + 0.1


def test_what_a_rollout_raised_is_given_back():
    thread = CollectingThread()
    fault = OSError("the simulator is gone")

    def collect(error):
        raise error

    assert thread.wait(thread.begin(collect, fault)) is fault
    assert thread.gauges()["queue/length"] == 1.0
    time.sleep(0.02)
    assert thread.gauges()["collector/waiting_seconds"] == pytest.approx(0.02, abs=0.5)
