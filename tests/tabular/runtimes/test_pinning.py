"""Threads that keep to a core while they work, and are free again afterwards."""

import os
import threading

import numpy as np
import pytest

from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.tabular.learner import FleetLearner
from velocirl.tabular.runtimes.pinning import cores_for, on_core
from velocirl.tabular.runtimes.threads import PinnedFleetLearner

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pinning needs Linux")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def test_on_core_is_for_this_thread_only():
    others = []
    with on_core(CORES[-1]):
        assert os.sched_getaffinity(0) == {CORES[-1]}
        assert os.sched_getaffinity(os.getppid()) >= set(CORES)
    thread = threading.Thread(target=lambda: others.append(os.sched_getaffinity(0)))
    with pytest.raises(OSError, match="halfway"), on_core(CORES[0]):
        raise OSError("halfway")
    thread.start()
    thread.join()
    assert others == [set(CORES)]
    assert os.sched_getaffinity(0) == set(CORES)


def test_a_core_for_each():
    assert cores_for(len(CORES)) == CORES
    with pytest.raises(ValueError, match=f"pin needs a core for each of {len(CORES) + 1} workers, and there are"):
        cores_for(len(CORES) + 1)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_each_thread_of_a_fleet_has_its_own(monkeypatch):
    agent = QLearning("TicTacToe-v1", seed=0, runtime="threads", workers=2, pin=True)
    agent.prepare()
    assert isinstance(agent.learner, PinnedFleetLearner)
    seen, take_share = {}, FleetLearner.take_share

    def spy(learner, thread):
        seen[thread] = os.sched_getaffinity(0), threading.get_ident()
        take_share(learner, thread)

    monkeypatch.setattr(FleetLearner, "take_share", spy)
    agent.learn(100_000)
    assert [seen[thread][0] for thread in (0, 1)] == [{core} for core in CORES[:2]]
    assert len({thread for _, thread in seen.values()}) == 2
    assert os.sched_getaffinity(0) == set(CORES)
    assert np.isfinite(agent.table.values).all()
    assert (agent.table.values != 0).any()
