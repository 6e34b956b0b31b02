"""Single precision: what numba makes of plain Python arithmetic, by the types and the machine code of each function."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import velocirl
from velocirl import float32, float64, int32, record

GRAVITY = 9.8
WEIGHTS = (0.1, 0.2, 0.7)
TABLE = np.array([0.1, 0.2, 0.7])


class Weights(NamedTuple):
    first: float
    second: float


NAMED = Weights(0.1, 0.2)


def make_closure(factor, helper):
    def closure(x, n):
        return helper(x) * factor

    return closure


def damped(x, factor=0.9):
    return factor * x


def twice_damped(x):
    return damped(damped(x)) + 0.5


def literals(x, n):
    return 0.1 * x + 1e-3


def integer_literals(x, n):
    return 2 * x - 3


def divided_by_an_integer(x, n):
    return x / 3


def quotient_of_integers(x, n):
    return 1 / 2 * x + n / 4


def remainder(x, n):
    return x % 2 + x % 1.5


def floor_division(x, n):
    return x // 2


def clipped_between_integers(x, n):
    return min(max(x, -1), 1)


def smaller_of_both_kinds(x, n):
    return min(x, n) + max(n, x)


def accumulated_from_an_integer(x, n):
    total = 0
    for k in range(4):
        total += k * x
    return total


def accumulated_quotients(x, n):
    total = 0
    for k in range(4):
        total += k / 3
    return total * x


def grown_in_a_loop(x, n):
    size = 1
    while size < 100:
        size *= 1.5
    return size * x


def either_kind(x, n):
    return x if x > 0 else 0


def true_as_a_number(x, n):
    return (x > 0) * x


def squared(x, n):
    return x**2 + abs(x) ** 0.5


def raised_to_a_variable_power(x, n):
    return x**n


def power_of_an_integer(x, n):
    return 2**x


def power_function(x, n):
    return math.pow(x, 2)


def mathematical_constants(x, n):
    return math.pi * x + math.e


def constant_of_the_module(x, n):
    return GRAVITY * x


def element_of_a_tuple(x, n):
    return WEIGHTS[1] * x + WEIGHTS[n % 3]


def element_of_an_array(x, n):
    return TABLE[2] * x


def field_of_a_named_tuple(x, n):
    return NAMED.first * x + NAMED.second


def loop_over_a_tuple(x, n):
    total = 0.0
    for weight in (0.25, 0.5):
        total += weight * x
    return total


def default_argument(x, n):
    return damped(x)


def nested_helpers(x, n):
    return twice_damped(x)


def function_within(x, n):
    def shifted(y):
        return y + 0.3

    return shifted(x) * 0.7


closure = make_closure(0.7, twice_damped)


def roots_of_integers(x, n):
    return math.sqrt(2) * x + math.sqrt(n)


def functions(x, n):
    return math.exp(-abs(x)) + math.log(1.5 + abs(x)) + math.tanh(x) + math.sin(x) * math.cos(n)


def two_sided_functions(x, n):
    return math.atan2(x, 1) + math.hypot(x, 2) + math.copysign(1, x)


def functions_of_numpy(x, n):
    return np.sqrt(abs(x)) + np.exp(-abs(x)) + np.minimum(x, 1) + np.pi


def rounded(x, n):
    return math.floor(x) * 0.5 + round(x) * 0.25 + int(x)


def converted(x, n):
    return float32(n) * x + int32(x) * 0.5


def converted_by_python(x, n):
    return float(n) * x


FUNCTIONS = [
    literals, integer_literals, divided_by_an_integer, quotient_of_integers, remainder, floor_division,
    clipped_between_integers, smaller_of_both_kinds, accumulated_from_an_integer, accumulated_quotients,
    grown_in_a_loop, either_kind, true_as_a_number, squared, raised_to_a_variable_power, power_of_an_integer,
    power_function, mathematical_constants, constant_of_the_module, element_of_a_tuple, element_of_an_array,
    field_of_a_named_tuple, loop_over_a_tuple, default_argument, nested_helpers, function_within, closure,
    roots_of_integers, functions, two_sided_functions, functions_of_numpy, rounded, converted, converted_by_python,
]  # fmt: skip
X = np.array([0.3, 1.7, -2.4, 12.5, -0.001], np.float32)
N = np.array([2, 1, 0, 3, 5], np.int32)

every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


@record
class Values:
    value: float32
    count: int32
    results: float32[len(FUNCTIONS)]


@record
class Exact:
    value: float64
    count: int32
    results: float64[6]


def step_through(functions):
    """A step that writes the result of each function into its place."""
    lines = [f"    state.results[{k}] = {one.__name__}(state.value, state.count)" for k, one in enumerate(functions)]
    source = "\n".join(["def step(state, params, action, rng):", *lines, "    return 0.0, False"])
    namespace = {one.__name__: one for one in functions}
    exec(compile(source, "<all functions>", "exec"), namespace)
    return namespace["step"]


@pytest.fixture(scope="module")
def compiled(define, apply, tmp_path_factory):
    """What the compiler made of each function, by name, and the states after one step of the environment."""
    made = {}
    remember = Dispatcher.add_overload

    def add_overload(self, result):
        made.setdefault(self.py_func.__name__, []).append(result)
        remember(self, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "add_overload", add_overload)
        patch.setenv("VELOCIRL_HOME", str(tmp_path_factory.mktemp("home")))  # so that all is compiled anew
        state = apply(define(state=Values, step=step_through(FUNCTIONS)), value=X, count=N)
    return made, state


@every_function
def test_a_function_is_typed_in_single_precision(compiled, function):
    (made,) = compiled[0][function.__name__]
    assert str(made.signature.return_type) == "float32"
    types = {name: str(kind) for name, kind in made.type_annotation.typemap.items()}
    assert {name: kind for name, kind in types.items() if "float64" in kind and "Dispatcher" not in kind} == {}


@every_function
def test_the_machine_code_of_a_function_knows_no_doubles(compiled, function):
    (made,) = compiled[0][function.__name__]
    code = made.library.get_llvm_str()
    assert "float" in code
    assert [line for line in code.splitlines() if " double " in line] == []


@every_function
def test_a_function_gives_what_it_does_in_double_precision(compiled, function):
    ours = compiled[1]["results"][:, FUNCTIONS.index(function)]
    exact = [float(function(float(x), int(n))) for x, n in zip(X, N, strict=True)]
    np.testing.assert_allclose(ours, exact, rtol=2e-6, atol=2e-6)


def test_a_double_environment_computes_in_double_precision(define, apply):
    some = [literals, divided_by_an_integer, accumulated_from_an_integer, constant_of_the_module, closure, functions]
    environment = define(state=Exact, step=step_through(some))
    assert environment.double
    values = X.astype(np.float64) + 1e-9  # too fine for single precision
    results = apply(environment, value=values, count=N)["results"]
    for k, function in enumerate(some):
        exact = [float(function(x, int(n))) for x, n in zip(values, N, strict=True)]
        np.testing.assert_allclose(results[:, k], exact, rtol=1e-13, atol=1e-13, err_msg=function.__name__)


def test_constants_are_rounded_once_as_numpy_does(compiled):
    """0.1 * x in single precision is float32(0.1) * x, not the rounded product of a double."""
    ours = compiled[1]["results"][:, FUNCTIONS.index(constant_of_the_module)]
    np.testing.assert_array_equal(ours, np.float32(GRAVITY) * X)


@record
class Checks:
    value: float32
    found: int32
    unequal: int32
    ordered: int32
    kept: float32
    quotient: float32


def check(state, params, action, rng):
    x = state.value
    state.found = 1 if math.isnan(x) else 2 if math.isinf(x) else 0
    state.unequal = 1 if x != x else 0
    state.ordered = 1 if x < 1.0 or x >= 1.0 else 0
    state.kept = x * 0.0
    state.quotient = 1.0 / x
    return 0.0, False


def test_nan_and_infinity_stay_visible(define, apply):
    state = apply(define(state=Checks, step=check), value=[np.nan, np.inf, -np.inf, 1.0, 0.0])
    assert state["found"].tolist() == [1, 2, 2, 0, 0]
    assert state["unequal"].tolist() == [1, 0, 0, 0, 0]
    assert state["ordered"].tolist() == [0, 1, 1, 1, 1]
    np.testing.assert_array_equal(state["kept"], [np.nan, np.nan, np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(state["quotient"], [np.nan, 0.0, 0.0, 1.0, np.inf])


def test_other_code_compiled_by_numba_keeps_its_own_rules():
    """The rule holds only while an environment is compiled: elsewhere, 0.1 * float32 stays numba's double."""
    import numba

    velocirl.make_vec("Counter-v0", 1)
    assert numba.njit(lambda x: 2 * x)(np.float32(0.1)) == 2 * float(np.float32(0.1))
    doubled = numba.njit(literals)
    doubled(np.float32(1.0), 1)
    assert str(doubled.nopython_signatures[0].return_type) == "float64"
