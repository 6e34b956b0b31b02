"""Threads that keep to a core while they work, and are free again afterwards."""

import os
import threading

import numpy as np
import pytest

from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.tabular.runtimes.pinning import cores_for, on_core
from velocirl.tabular.runtimes.threads import PinnedFleetLearner, pinned

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
def test_each_thread_of_a_fleet_has_its_own():
    agent = QLearning("TicTacToe-v1", seed=0, runtime="threads", workers=2, pin=True)
    agent.prepare()
    assert isinstance(agent.learner, PinnedFleetLearner)
    seen = {}
    inner = agent.learner._run

    def spy(copies, table, current, *more):
        pinned_run = pinned(lambda *_: seen.setdefault(os.sched_getaffinity(0).pop(), threading.get_ident()), cores)
        pinned_run(copies, table, current, *more)
        inner(copies, table, current, *more)

    cores = {id(current.tally): core for current, core in zip(agent.learner.current, CORES, strict=False)}
    agent.learner._run = spy
    agent.learn(100_000)
    assert sorted(seen) == CORES[:2]
    assert len(set(seen.values())) == 2
    assert os.sched_getaffinity(0) == set(CORES)
    assert np.isfinite(agent.table.values).all()
    assert (agent.table.values != 0).any()
