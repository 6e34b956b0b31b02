"""Benchmarks of learning from data: what they count, and peers in a Python of their own."""

import sys
from contextlib import closing

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.peers.process import Peer
from velocirl.bench.suite.training import offline


def test_operations_are_those_of_an_update_counted_by_hand():
    hidden, seen, acted, rows = 256 * 256, 17, 6, 256
    critic, policy, value = (
        inputs * 256 + hidden + 256 * outputs for inputs, outputs in ((seen + acted, 1), (seen, acted), (seen, 1))
    )
    # Two frozen critics and two that learn; nobody asks for the gradient of what a network reads.
    critics = 2 * (critic + critic + 2 * critic - (seen + acted) * 256)
    back = 2 * policy - seen * 256
    # The actor learns at every second update, through one critic, of whose inputs only the action is asked for.
    through = critic + critic - seen * 256
    assert offline.operations("td3-bc") == 2 * rows * (policy + critics + (policy + back + through) / 2)
    learnt = 3 * value + 2 * value - seen * 256
    assert offline.operations("iql") == 2 * rows * (critics + learnt + policy + back)


def test_a_peer_may_have_a_python_of_its_own(monkeypatch):
    monkeypatch.delenv(offline.PYTHON, raising=False)
    with pytest.raises(UnavailableError, match="VELOCIRL_D3RLPY_PYTHON names no python that has d3rlpy"):
        offline.beside_d3rlpy("iql").contestants["d3rlpy, 2 threads"]()
    monkeypatch.setenv("PYTHON_OF_A_PEER", sys.executable)
    with closing(Peer("numpy_matmul", "product", 16, needs="numpy", python_of="PYTHON_OF_A_PEER")) as peer:
        assert peer.best(2) > 0
