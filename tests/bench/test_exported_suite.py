"""The benchmark of exported policies: that what is measured decides."""

import shutil

import numpy as np
import pytest

from velocirl.bench.measuring import QUICK
from velocirl.bench.suite.training import exported_latency

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_all_ways_come_to_the_same_action():
    seen, action = exported_latency.in_c("float32").call()
    in_a_loop = action.copy()
    expected = exported_latency.policy().predict(seen[-1], deterministic=True)[0]
    assert np.allclose(in_a_loop, expected, rtol=1e-4, atol=1e-5)
    _, one, by_ctypes = exported_latency.by_ctypes().call()
    assert np.allclose(by_ctypes, exported_latency.policy().predict(one, deterministic=True)[0], rtol=1e-4, atol=1e-5)
    assert np.allclose(exported_latency.by_onnx().call()[0][0], by_ctypes, rtol=1e-4, atol=1e-5)


def test_a_loop_is_measured_by_the_decision():
    timed = exported_latency.in_c("int8")
    timed.prepare(QUICK)
    assert 1e-8 < timed.sample() < 1e-4
