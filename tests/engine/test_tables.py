"""Tables in scalar functions, against NumPy, in plain Python and compiled."""

import numpy as np
import pytest

import velocirl
from velocirl import Box, Environment, float32, lookup, record

PUMP = np.array([[0.0, 30.0], [0.01, 29.0], [0.03, 22.0], [0.04, 12.0], [0.05, 0.0]])  # m3/s, m
POINTS = np.concatenate([np.linspace(-0.02, 0.07, 101), PUMP[:, 0]])


@record
class State:
    flow: float32


def reset(state, params, rng):
    state.flow = 0.0


def step(state, params, action, rng):
    state.flow = action[0]
    return lookup(PUMP, state.flow), False


def observe(state, params, observation):
    observation[0] = lookup(PUMP, state.flow)


PLANT = Environment(
    "Pump-v0", state=State, observation=Box(-np.inf, np.inf, (1,)), action=Box(-1.0, 1.0, (1,)), max_steps=4,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


def test_a_table_is_interpolated_as_by_numpy():
    found = [lookup(PUMP, x) for x in POINTS]
    np.testing.assert_allclose(found, np.interp(POINTS, *PUMP.T), rtol=1e-12, atol=1e-12)
    rising = np.array([[-1.0, 5.0], [2.0, 8.0]])
    assert [lookup(rising, x) for x in (-9.0, 0.0, 2.0, 7.0)] == [5.0, 6.0, 8.0, 8.0]
    assert np.isnan(lookup(PUMP, np.nan))


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_fleets_look_up_as_numpy_does(device):
    pumps = velocirl.make_vec(PLANT, len(POINTS), device=device)
    pumps.reset()
    seen, rewards, *_ = pumps.step(POINTS[:, None].astype(np.float32))
    expected = np.interp(POINTS.astype(np.float32), *PUMP.T)
    np.testing.assert_allclose(rewards, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(seen[:, 0], expected, rtol=1e-5, atol=1e-4)
