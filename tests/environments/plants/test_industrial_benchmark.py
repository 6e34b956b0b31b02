"""The Industrial Benchmark against its package, step for step with the same draws."""

import time
from collections import deque

import numpy as np
import pytest
import scipy.special  # noqa: F401 - the package's own import of it fails once NumPy has the names below

import velocirl
from velocirl.engine import random
from velocirl.engine.records import with_attributes
from velocirl.environments.plants import industrial_benchmark as ours

STEPS = 700
NAMES = {
    "setpoint": "p", "velocity": "v", "gain": "g", "shift": "h", "effective_shift": "he", "hidden_velocity": "hv",
    "hidden_gain": "hg", "fatigue": "f", "consumption": "c", "angle": "gs_phi_idx", "domain": "gs_domain",
    "response": "gs_sys_response",
}  # fmt: skip


class Draws:
    """NumPy's random numbers as the package asks for them, out of queues."""

    def __init__(self):
        self.exponentials, self.uniforms, self.strikes, self.normals, self.lengths = (deque() for _ in range(5))

    def put_in_place(self, monkeypatch):
        given = {
            "exponential": lambda scale: -scale * np.log(1.0 - self.exponentials.popleft()),
            "rand": self.uniforms.popleft,
            "binomial": lambda _, probability: int(self.strikes.popleft() < probability),
            "normal": lambda mean, deviation: mean + deviation * self.normals[0],
            "randn": lambda: self.normals[1],
            "randint": lambda low, high: low + int((high - low) * self.lengths.popleft()),
        }
        for name, function in given.items():
            monkeypatch.setattr(np.random, name, function)

    def fill(self, rng, theirs=None, varies=False, begins=False):
        """What ours will draw from a stream, in the order in which the package asks for it."""
        rng = rng.copy()
        if begins:
            length, slope, rest = (random.uniform(rng) for _ in range(3))
            self.lengths.append(length)
            self.uniforms.extend([slope, rest])
        if varies:
            length, slope, rest, turn = ours.vary_draws(rng)
            if begins:
                before, drift = 50.0, slope_of(*self.uniforms)
            else:
                before, drift = theirs.state["p"], theirs._p_ch
                if theirs._p_step == theirs._p_steps:
                    self.lengths.append(length)
                    self.uniforms.extend([slope, rest])
                    drift = slope_of(slope, rest)
            if not 0.0 <= before + drift <= 100.0:
                self.uniforms.append(turn)
        of_velocity, of_gain, worst = ours.wear_draws(rng)
        for queue, k in ((self.exponentials, 0), (self.uniforms, 1), (self.strikes, 2)):
            queue.extend([of_gain[k], of_velocity[k]])
        self.normals = [worst, random.normal(rng)]


def slope_of(slope, rest):
    return 0.0 if rest < 0.1 else 2.0 * slope - 1.0


def double(record, **values):
    """A row of a record, whose numbers are of double precision: what differs is then the formula, never rounding."""
    single = record.dtype
    kinds = [(name, np.float64 if single[name].base == np.float32 else single[name].base, single[name].shape)
             for name in record.fields]  # fmt: skip
    row = with_attributes(np.zeros(1, kinds))[0]
    for name, value in {**record.defaults, **values}.items():
        setattr(row, name, value)
    return row


@pytest.fixture
def package(monkeypatch):
    """The package's benchmark, with the names that NumPy no longer has."""
    monkeypatch.setattr(np, "float", float, raising=False)
    monkeypatch.setattr(np, "int", int, raising=False)
    from industrial_benchmark_python.IDS import IDS

    return IDS


@pytest.fixture
def draws(monkeypatch):
    """The package's random numbers, to be filled with ours."""
    draws, single = Draws(), random.uniform
    draws.put_in_place(monkeypatch)
    monkeypatch.setattr(random, "uniform", lambda rng: float(single(rng)))  # a float32 would take all to its precision
    return draws


def compare(state, theirs, bound):
    for name, their_name in NAMES.items():
        assert float(getattr(state, name)) == pytest.approx(float(theirs.state[their_name]), rel=bound, abs=bound), name
    np.testing.assert_allclose(state.costs, theirs.state["o"], rtol=bound)


@pytest.mark.parametrize(
    ("setpoint", "varies", "push"),
    [(50.0, False, 0.0), (100.0, False, -0.3), (0.0, False, 0.3), (50.0, True, 0.0)],
    ids=["half", "full", "idle", "varying"],
)
def test_a_trajectory_is_that_of_the_package(package, draws, setpoint, varies, push):
    rng, actions = random.streams(3, 1)[0], np.random.default_rng(4)
    state, params = double(ours.State), double(ours.Params, setpoint=setpoint, varies=varies)
    draws.fill(rng, varies=varies, begins=True)
    theirs = package(setpoint, stationary_p=not varies)
    ours.reset(state, params, rng)
    compare(state, theirs, 1e-9)
    drift, worst, angles = push, 0.0, set()
    for elapsed in range(STEPS):
        if elapsed % 25 == 0:  # far to each side, so that all angles and hidden states are seen
            drift = actions.uniform(-1.0, 1.0, 3) + push
        action = np.clip(drift + actions.normal(0.0, 0.3, 3), -1.5, 1.5)
        draws.fill(rng, theirs, varies)
        theirs.step(action)
        reward, terminated = ours.step(state, params, action, rng)
        compare(state, theirs, 1e-9)
        assert reward == pytest.approx(theirs.state["reward"], rel=1e-9)
        assert not terminated
        assert not draws.uniforms
        worst = max(worst, float(state.hidden_velocity), float(state.hidden_gain))
        angles.add(int(state.angle))
    assert len(angles) > 8
    assert varies == (state.setpoint != setpoint)
    if setpoint == 100.0:
        assert worst == ours.WORST


def test_single_steps_in_single_precision_are_those_of_double_precision():
    rng, actions = random.streams(5, 1)[0], np.random.default_rng(6)
    params, exact = with_attributes(ours.Params.rows(1))[0], double(ours.Params)
    state, twin = with_attributes(ours.State.rows(1))[0], double(ours.State)
    ours.reset(state, params, rng)
    for _ in range(300):
        for name in ours.State.fields:
            twin[name] = state[name]
        action, same = actions.uniform(-1.0, 1.0, 3), rng.copy()
        ours.step(state, params, action.astype(np.float32), rng)
        ours.step(twin, exact, action, same)
        for name in ("fatigue", "consumption", "shift", "hidden_gain", "hidden_velocity"):
            assert float(state[name]) == pytest.approx(float(twin[name]), rel=2e-5, abs=2e-5), name
        assert state.angle == twin.angle


@pytest.mark.slow
def test_a_fleet_is_at_least_a_hundred_times_as_fast_as_the_package(package):
    theirs, action = package(50), np.zeros(3)
    fleet = velocirl.make_vec("IndustrialBenchmark-v0", 4096, seed=1, threads=1)
    fleet.reset()
    fleet.run_randomly(10)
    their_time, our_time = [], []  # seconds for a step, in turns
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(500):
            theirs.step(action)
        middle = time.perf_counter()
        fleet.run_randomly(20)
        their_time.append((middle - begin) / 500)
        our_time.append((time.perf_counter() - middle) / (20 * 4096))
    assert min(their_time) / min(our_time) > 100.0
