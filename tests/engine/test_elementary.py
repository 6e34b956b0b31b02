"""Sine and cosine of compiled single-precision code against NumPy's in double precision."""

from math import cos, pi, sin

import numpy as np
import pytest

from velocirl import float32, float64, record


@record
class Angle:
    value: float32
    sine: float32
    cosine: float32


@record
class ExactAngle:
    value: float64
    sine: float64
    cosine: float64


def turn(state, params, action, rng):
    state.sine = sin(state.value)
    state.cosine = cos(state.value)
    return 0.0, False


@pytest.fixture(scope="module")
def of(define, apply):
    """Sine and cosine of an array of angles, as environments compute them."""
    environment = define(state=Angle, step=turn)

    def of(angles):
        state = apply(environment, value=np.asarray(angles, np.float32))
        return state["sine"], state["cosine"]

    return of


def errors(of, angles):
    """The largest absolute errors of sine and cosine."""
    angles = np.asarray(angles, np.float32)
    sine, cosine = of(angles)
    exact = angles.astype(np.float64)
    return np.abs(sine - np.sin(exact)).max(), np.abs(cosine - np.cos(exact)).max()


@pytest.mark.parametrize(("reach", "bound"), [(pi, 1.5e-7), (100.0, 2e-7), (1000.0, 2e-7), (30_000.0, 1e-5)])
def test_the_error_stays_below_its_bound(of, reach, bound):
    assert max(errors(of, np.linspace(-reach, reach, 300_001))) < bound
    assert max(errors(of, np.random.default_rng(1).uniform(-reach, reach, 100_000))) < bound


def test_it_is_most_exact_where_the_functions_are_steepest(of):
    """At multiples of pi and odd multiples of pi/2 the result is small and must not lose its digits."""
    multiples = np.arange(-300, 301)
    near = (multiples[:, None] * (pi / 2) + np.linspace(-1e-3, 1e-3, 21)).ravel()
    assert max(errors(of, near)) < 2e-7
    small = np.linspace(-1e-3, 1e-3, 1001, dtype=np.float32)
    np.testing.assert_allclose(of(small)[0], np.sin(small.astype(np.float64)), rtol=2e-7)


def test_they_lie_between_minus_one_and_one(of):
    for values in of(np.random.default_rng(2).uniform(-1000, 1000, 100_000)):
        assert np.abs(values).max() <= 1.0


def test_squares_add_up_to_one(of):
    sine, cosine = of(np.linspace(-50, 50, 20_001))
    np.testing.assert_allclose(sine.astype(float) ** 2 + cosine.astype(float) ** 2, 1.0, atol=5e-7)


def test_special_values(of):
    sine, cosine = of([0.0, np.nan, np.inf, -np.inf])
    assert sine[0] == 0.0
    assert cosine[0] == 1.0
    assert np.isnan([sine[1], cosine[1]]).all()
    assert not np.isfinite([*sine[2:], *cosine[2:]]).any()


def test_a_double_environment_has_them_in_double_precision(define, apply):
    angles = np.random.default_rng(3).uniform(-1000, 1000, 1000)
    state = apply(define(state=ExactAngle, step=turn), value=angles)
    np.testing.assert_allclose(state["sine"], np.sin(angles), rtol=0, atol=1e-15)
    np.testing.assert_allclose(state["cosine"], np.cos(angles), rtol=0, atol=1e-15)
