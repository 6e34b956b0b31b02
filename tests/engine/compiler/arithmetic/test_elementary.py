"""Elementary functions of compiled single-precision code against NumPy's and SciPy's in double precision."""

import re
from math import cos, pi, sin

import numba
import numpy as np
import pytest
import scipy.special

from velocirl import float32, float64, record
from velocirl.engine.compiler import compiling
from velocirl.engine.compiler.arithmetic import elementary
from velocirl.engine.compiler.caching.cache import NoCache
from velocirl.engine.compiler.compiling import compile_loop, learning_translator


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


# The functions of learners: how exact each is, absolutely or relatively, whichever is less, over which numbers.
LEARNERS = {
    "exp": (np.exp, 2e-7, np.linspace(-86.89, 88.722, 1_000_001)),
    "expm1": (np.expm1, 2e-7, np.linspace(-86.89, 88.722, 1_000_001)),
    "log": (np.log, 2e-7, np.exp(np.linspace(-103.0, 88.7, 1_000_001))),
    "tanh": (np.tanh, 3e-7, np.linspace(-20, 20, 1_000_001)),
    "erf": (scipy.special.erf, 5e-7, np.linspace(-8, 8, 1_000_001)),
}
learners = pytest.mark.parametrize("name", LEARNERS)


def loop_of(name):
    function = getattr(elementary, name)

    def loop(values, results):
        for i in range(len(values)):
            results[i] = function(values[i])

    return loop


def computed(name, values):
    """A function of an array of numbers, as learners compute it."""
    values = np.asarray(values, np.float32)
    arguments = (values, np.empty_like(values))
    compile_loop(loop_of(name), arguments, learning_translator("elementary"), before=lambda: None)(*arguments)
    return arguments[1]


def worst(name, values):
    """The largest error, of each result the lesser of its absolute and its relative one."""
    values = np.asarray(values, np.float32)
    exact = LEARNERS[name][0](values.astype(np.float64))
    error = np.abs(computed(name, values) - exact)
    return (error / np.maximum(np.abs(exact), 1.0)).max()


@learners
def test_a_function_of_learners_is_as_exact_as_it_says(name):
    _, bound, values = LEARNERS[name]
    assert worst(name, values) < bound
    near_one = np.random.default_rng(1).uniform(0.25 if name == "log" else -2.0, 2.0, 300_000)
    assert worst(name, near_one) < bound


def test_the_exponential_is_relatively_exact_however_small():
    values = LEARNERS["exp"][2].astype(np.float32)
    np.testing.assert_allclose(computed("exp", values), np.exp(values.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize("name", ["expm1", "tanh", "erf"])
def test_small_numbers_keep_their_digits(name):
    values = np.concatenate([np.geomspace(1e-30, 1.0, 100_000), -np.geomspace(1e-30, 1.0, 100_000)])
    values = values.astype(np.float32)
    np.testing.assert_allclose(computed(name, values), LEARNERS[name][0](values.astype(np.float64)), rtol=4e-7)


def test_the_logarithm_keeps_its_digits_beside_one():
    values = (1.0 + np.linspace(-1e-2, 1e-2, 100_000)).astype(np.float32)
    np.testing.assert_allclose(computed("log", values), np.log(values.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_it_never_leaves_minus_one_to_one(name):
    results = computed(name, np.linspace(-30, 30, 1_000_001))
    assert np.abs(results).max() <= 1.0
    np.testing.assert_array_equal(results, -results[::-1])


@learners
def test_a_nan_is_not_hidden(name):
    payload = np.array([0x7FC00001, 0x7FFFFFFF, 0xFFC00000], np.uint32).view(np.float32)  # NaNs of every look
    assert np.isnan(computed(name, payload)).all()


@pytest.mark.parametrize(
    ("name", "values", "results"),
    [
        ("exp", [-np.inf, -1e30, -200.0, -0.0, 0.0, 89.0, 1e30, np.inf], [0, 0, 0, 1, 1, np.inf, np.inf, np.inf]),
        ("expm1", [-np.inf, -1e30, 0.0, 89.0, np.inf], [-1, -1, 0, np.inf, np.inf]),
        ("log", [0.0, -0.0, 1.0, np.inf, -1e-40, -1.0, -np.inf], [-np.inf, -np.inf, 0, np.inf] + 3 * [np.nan]),
        ("erf", [-np.inf, 0.0, np.inf], [-1, 0, 1]),
    ],
)
def test_special_values_of_learners(name, values, results):
    np.testing.assert_array_equal(computed(name, values), np.array(results, np.float32))


def test_the_largest_finite_exponential_is_finite():
    values = np.float32([88.7228, 88.72284])
    assert computed("exp", values)[0] == pytest.approx(np.exp(np.float64(values[0])), rel=2e-7)
    assert worst("tanh", [-1e30, 1e30, np.inf, -np.inf]) < 3e-7


@learners
def test_a_loop_of_learners_is_vectorised(name):
    row = numba.typeof(np.empty(1, np.float32))
    made = compiling._load(loop_of(name), (row, row), learning_translator("elementary"), NoCache(lambda: None))
    (code,) = made.inspect_llvm().values()
    assert re.search(r"<(4|8|16) x float>", code)
    assert not re.search(rf"@(llvm\.)?{name}f?[.(]", code)


def test_double_precision_is_refused_rather_than_lost():
    row = numba.typeof(np.empty(1, np.float64))
    with pytest.raises(numba.TypingError, match="fast elementary functions are for float32, not float64"):
        compiling._load(loop_of("log"), (row, row), learning_translator("elementary"), NoCache(lambda: None))
