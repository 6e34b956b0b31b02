"""A PID as C: compiled strictly, and beside the PID itself over episodes."""

import ctypes
import subprocess

import numpy as np
import pytest
from deployed import FLOATS, STRICT, needs_cc

import velocirl
from velocirl import Box
from velocirl.controllers import PID, Loop
from velocirl.controllers.layout import Layout
from velocirl.engine.registry import find

PLANT = Layout(
    "Plant-v0", Box(-1000.0, 1000.0, (4,)), Box(np.float32([-10, 0]), np.float32([10, 5])),
    ("level", "flow", "target", "*/ odd"), ("valve", "pump"),
)  # fmt: skip


def on_the_plant(*loops, **more):
    pid = PID(*loops, time_step=2.0, **more)
    pid._layout = PLANT
    pid.settle(PLANT, None)
    return pid


PIDS = {
    "pi": lambda: on_the_plant(Loop("level", "valve", 5.0, gain=0.5, integral_time=4.0, bias=1.0), bias={"pump": 2.5}),
    "filtered": lambda: on_the_plant(
        Loop("level", "valve", "target", gain=-0.5, derivative_time=3.0, filter_time=6.0, low=-3.0),
        Loop("flow", "pump", 1.0, gain=0.3, integral_time=20.0),
    ),
    "cascade": lambda: on_the_plant(
        Loop("flow", "valve", Loop("level", None, "target", gain=3.0, integral_time=9.0, high=20.0), gain=0.5),
        bias={"pump": 0.0},
    ),
    "forward": lambda: on_the_plant(
        Loop(
            "level", "pump", 2.0, gain=0.4, integral_time=30.0, feed_forward={"flow": -0.25, "target": 0.1},
            schedule=("flow", [(-5.0, 0.5), (0.0, 1.0), (5.0, 3.0)]),
        ),
        bias={"valve": -1.5},
    ),
    "reactor": lambda: find("ChemicalReactor-v0").controller.bind("ChemicalReactor-v0"),
}  # fmt: skip


@needs_cc
@pytest.mark.parametrize("kind", PIDS)
def test_the_file_acts_as_the_pid_does(kind, tmp_path):
    pid = PIDS[kind]()
    path = velocirl.export(pid, tmp_path / "pid.c", name="loop")
    done = subprocess.run(
        ["cc", *STRICT, "-shared", "-fPIC", str(path), "-o", str(tmp_path / "pid.so")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    predict = ctypes.CDLL(str(tmp_path / "pid.so")).loop_predict
    space, actions = pid.layout.observation, pid.layout.action.shape[0]
    low, high = np.maximum(space.low, -20.0), np.minimum(space.high, np.maximum(space.low, -20.0) + 40.0)
    if kind == "reactor":
        low, high = space.low, space.high
    draws, seen = np.random.default_rng(0), None
    for _ in range(3):  # episodes, each with a state of its own
        kept, memory = (ctypes.c_double * (1 + 2 * len(pid.stages)))(), None
        for _ in range(200):
            fresh = draws.uniform(low, high).astype(np.float32)
            seen = fresh if memory is None else (0.9 * seen + 0.1 * fresh).astype(np.float32)
            expected, memory = pid.predict(seen, memory)
            action = np.zeros(actions, np.float32)
            assert predict(seen.ctypes.data_as(FLOATS), kept, action.ctypes.data_as(FLOATS)) == 0
            np.testing.assert_allclose(action, expected, rtol=1e-6, atol=1e-6 * np.abs(pid.layout.bounds[1]).max())
    before = bytes(kept)
    seen[pid.layout.signal(pid.loops[0].signal)] = np.nan
    assert predict(seen.ctypes.data_as(FLOATS), kept, action.ctypes.data_as(FLOATS)) == 1
    assert bytes(kept) == before


def test_only_c_is_written_of_a_pid_and_only_of_one_that_is_bound(tmp_path):
    with pytest.raises(ValueError, match=r"format='onnx' is for networks: export a PID as C"):
        velocirl.export(PIDS["pi"](), tmp_path / "pid.onnx")
    with pytest.raises(ValueError, match="weights='int8' is for networks"):
        velocirl.export(PIDS["pi"](), tmp_path / "pid.c", weights="int8")
    with pytest.raises(ValueError, match="does not know its environment yet"):
        velocirl.export(PID(Loop(0, 0, 1.0, gain=1.0), time_step=1.0), tmp_path / "pid.c")
    assert not list(tmp_path.iterdir())
