import os
import signal

import pytest

from velocirl.bench.tuning.watching import Attentive, Deadline
from velocirl.runs.signals import StopSignals


class Heard:
    def __init__(self):
        self.told = []

    def begin(self, stage):
        self.told.append(stage)

    def advance(self, share, detail=""):
        self.told.append((share, detail))


class Dying:
    """Something in whose destructor a signal arrives, where Python would drop what it raises."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_in_a_destructor_is_not_lost():
    heard = Heard()
    with StopSignals() as signals:
        watcher = Attentive(heard, signals)
        watcher.begin("speed")
        watcher.advance(0.5, "one")
        dying = Dying()
        del dying
        with pytest.raises(KeyboardInterrupt):
            watcher.advance(0.6, "two")
        with pytest.raises(KeyboardInterrupt):
            watcher.begin("learning")
    assert heard.told == ["speed", (0.5, "one")]


def test_time_runs_out():
    deadline = Deadline(10.0)
    deadline._began -= 4.0
    assert deadline.used == pytest.approx(4.0, abs=0.1)
    assert deadline.left == pytest.approx(6.0, abs=0.1)
    assert deadline.share == pytest.approx(0.4, abs=0.01)
    deadline._began -= 40.0
    assert (deadline.left, deadline.share) == (0.0, 1.0)
