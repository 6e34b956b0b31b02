"""A flat optimiser: its compiled loop, its state, and the accumulation of gradients."""

import platform

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache

from velocirl.engine.compiler.compiling import _load, compile_loop, cpu_translator
from velocirl.optim.clipping import norm_scale
from velocirl.optim.flat import FlatOptimiser, step_loop
from velocirl.optim.optimisers import FACTORS, SGD, Adam, AdamW, RMSProp

SIZE = 37  # no multiple of a vector's width
OPTIMISERS = [
    Adam(),
    AdamW(),
    SGD(weight_decay=0.1),
    SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
    RMSProp(),
    RMSProp(momentum=0.5),
]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def loop_arguments(optimiser, size):
    moments = np.zeros((optimiser.slots, size), np.float32)
    factors = np.zeros(FACTORS, np.float32)
    return numbers(size), numbers(size, seed=1), moments, optimiser.settings(), factors, 0.01, 1, 1.0


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_compiled_steps_are_bit_for_bit_those_of_plain_python(optimiser):
    flat = FlatOptimiser(optimiser, SIZE)
    parameters = numbers(SIZE)
    expected, _, moments, settings, factors, *_ = loop_arguments(optimiser, SIZE)
    plain = step_loop(optimiser.rule)
    for step, gradient in enumerate(numbers(20, SIZE, seed=3), start=1):
        flat.step(parameters, gradient, 0.01, scale=0.7)
        plain(expected, gradient, moments, settings, factors, 0.01, step, 0.7)
    np.testing.assert_array_equal(parameters, expected)
    np.testing.assert_array_equal(flat.moments, moments)
    assert flat.steps == 20


def test_a_changed_hyper_parameter_is_obeyed_and_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path))
    compiled = []
    results = []
    for optimiser in (Adam(), Adam(beta1=0.5, epsilon=0.1), AdamW(weight_decay=0.4)):
        arguments = loop_arguments(optimiser, SIZE)
        translator = cpu_translator("test", double=False)
        loop = compile_loop(step_loop(optimiser.rule), arguments, translator, before=lambda: compiled.append(1))
        loop(*arguments)
        results.append(arguments[0])
    assert len(compiled) == 1
    assert np.abs(results[0] - results[1]).max() > 1e-4
    assert np.abs(results[0] - results[2]).max() > 1e-4


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks for x86 instructions")
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_the_loop_is_vectorised(optimiser):
    arguments = loop_arguments(optimiser, SIZE)
    signature = tuple(numba.typeof(argument) for argument in arguments)
    dispatcher = _load(step_loop(optimiser.rule), signature, cpu_translator("test", double=False), NullCache())
    instructions = dispatcher.inspect_asm(signature)
    assert "mulps" in instructions
    if not isinstance(optimiser, SGD):
        assert "sqrtps" in instructions
        assert "divps" in instructions


def test_a_scale_is_a_gradient_scaled():
    gradient = 10 * numbers(SIZE, seed=4)
    scale = norm_scale(float(gradient @ gradient), 0.5)
    assert scale < 0.1
    clipped, expected = numbers(SIZE), numbers(SIZE)
    FlatOptimiser(SGD(), SIZE).step(clipped, gradient, 0.1, scale=scale)
    FlatOptimiser(SGD(), SIZE).step(expected, np.float32(scale) * gradient, 0.1)
    np.testing.assert_array_equal(clipped, expected)
    assert np.linalg.norm(clipped - numbers(SIZE)) == pytest.approx(0.1 * 0.5, rel=1e-4)


def test_a_nan_is_not_hidden():
    for optimiser in OPTIMISERS:
        parameters, gradient = np.zeros(3, np.float32), np.array([1.0, np.nan, 1.0], np.float32)
        FlatOptimiser(optimiser, 3).step(parameters, gradient, 0.1)
        assert np.isnan(parameters).tolist() == [False, True, False]


def regression_gradient(weights, inputs, targets):
    """The gradient of mean((inputs @ weights - targets) ** 2) / 2."""
    return (inputs.T @ (inputs @ weights - targets) / np.float32(len(targets))).astype(np.float32)


@pytest.mark.parametrize("cuts", [[16, 32, 48], [5, 6, 50]], ids=["equal", "unequal"])
def test_accumulated_micro_batches_are_one_big_batch(cuts):
    inputs, targets = numbers(64, 9, seed=5), numbers(64, seed=6)
    big, small = np.zeros(9, np.float32), np.zeros(9, np.float32)
    of_big, of_small = FlatOptimiser(Adam(), 9), FlatOptimiser(Adam(), 9)
    for _ in range(25):
        of_big.step(big, regression_gradient(big, inputs, targets), 0.03)
        for some_inputs, some_targets in zip(np.split(inputs, cuts), np.split(targets, cuts), strict=True):
            gradient = regression_gradient(small, some_inputs, some_targets)
            weight = 1.0 if cuts[0] == 16 else len(some_targets)
            of_small.accumulate(gradient, weight)
        of_small.step(small, of_small.mean_gradient(), 0.03)
    assert np.linalg.norm(big) > 0.1
    np.testing.assert_allclose(small, big, rtol=1e-4, atol=1e-5)
    assert of_small.steps == of_big.steps == 25


def test_the_mean_gradient_is_taken_once():
    flat = FlatOptimiser(SGD(), 2)
    flat.accumulate(np.array([1.0, 2.0], np.float32))
    flat.accumulate(np.array([4.0, -2.0], np.float32), weight=2.0)
    np.testing.assert_allclose(flat.mean_gradient(), [3.0, -2.0 / 3], rtol=1e-6)
    with pytest.raises(RuntimeError, match=r"no gradient was accumulated .* call accumulate"):
        flat.mean_gradient()
    flat.accumulate(np.array([5.0, 6.0], np.float32))
    np.testing.assert_array_equal(flat.mean_gradient(), [5.0, 6.0])


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_resumed_steps_are_those_of_an_unbroken_run(optimiser):
    gradients = numbers(20, SIZE, seed=7)
    unbroken, parameters = numbers(SIZE), numbers(SIZE)
    one, first = FlatOptimiser(optimiser, SIZE), FlatOptimiser(optimiser, SIZE)
    for gradient in gradients:
        one.step(unbroken, gradient, 0.01)
    for gradient in gradients[:10]:
        first.step(parameters, gradient, 0.01)
    second = FlatOptimiser(optimiser, SIZE)
    second.step(numbers(SIZE), gradients[3], 1.0)  # what was there before is forgotten
    second.accumulate(gradients[4])
    second.load_state(first.state())
    for gradient in gradients[10:]:
        second.accumulate(gradient)
        second.step(parameters, second.mean_gradient(), 0.01)
    np.testing.assert_array_equal(parameters, unbroken)
    for name, array in one.state().items():
        np.testing.assert_array_equal(second.state()[name], array)


def test_a_half_accumulated_gradient_is_state():
    first, second = FlatOptimiser(SGD(), SIZE), FlatOptimiser(SGD(), SIZE)
    parts = numbers(3, SIZE, seed=8)
    first.accumulate(parts[0])
    first.accumulate(parts[1], weight=3.0)
    second.load_state(first.state())
    for flat in (first, second):
        flat.accumulate(parts[2])
    np.testing.assert_array_equal(first.mean_gradient(), second.mean_gradient())


def test_a_state_is_a_copy():
    flat = FlatOptimiser(Adam(), 3)
    state = flat.state()
    flat.step(np.zeros(3, np.float32), np.ones(3, np.float32), 0.1)
    assert state["steps"] == 0
    np.testing.assert_array_equal(state["moments"], 0)
    assert flat.moments.all()
    assert state["accumulated"].shape == (0,)  # a checkpoint without accumulation does not pay for it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"momentum": np.zeros(3)}, r"has moments, steps, accumulated, weight; this has .*momentum"),
        ({"moments": np.zeros((1, 4), np.float32)}, r"float32\(1, 4\), but adam over 4 values has float32\(2, 4\)"),
        ({"moments": np.zeros((2, 5), np.float32)}, "load what this optimiser saved for this network"),
        ({"moments": np.zeros((2, 4))}, "moments of the state is float64"),
        ({"steps": np.array(2.0)}, "steps of the state is float64"),
        ({"steps": np.array(-1)}, "steps -1 .* must be at least 0"),
        ({"weight": np.array(1.0)}, r"accumulated of the state is float32\(0,\)"),
        ({"accumulated": np.zeros(4, np.float32)}, r"accumulated of the state is float32\(4,\)"),
        ({"accumulated": np.zeros(4, np.float32), "weight": np.array(np.nan)}, "weight nan"),
        ({"weight": np.zeros(2)}, r"weight of the state is float64\(2,\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, message):
    flat = FlatOptimiser(Adam(), 4)
    flat.step(np.zeros(4, np.float32), np.ones(4, np.float32), 0.1)
    before = flat.state()
    with pytest.raises(ValueError, match=message):
        flat.load_state({**FlatOptimiser(Adam(), 4).state(), **change})
    for name, array in flat.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_arrays_that_the_loop_cannot_take_are_refused():
    flat = FlatOptimiser(Adam(), 4)
    good = np.zeros(4, np.float32)
    for bad, message in [
        (np.zeros(4), r"must be a float32 array of shape \(4,\), not float64\(4,\)"),
        (np.zeros(3, np.float32), r"not float32\(3,\)"),
        (np.zeros((4, 1), np.float32), r"not float32\(4, 1\)"),
        ([0.0] * 4, "not list"),
        (np.zeros(8, np.float32)[::2], "must be contiguous"),
        (np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32), "aligned"),
    ]:
        with pytest.raises(ValueError, match=f"gradient .*{message}"):
            flat.step(good, bad, 0.1)
        with pytest.raises(ValueError, match=f"parameters .*{message}"):
            flat.step(bad, good, 0.1)
        with pytest.raises(ValueError, match=f"gradient .*{message}"):
            flat.accumulate(bad)
    with pytest.raises(ValueError, match="parameters is read-only"):
        flat.step(np.frombuffer(bytes(16), np.float32), good, 0.1)
    both = np.zeros(6, np.float32)
    with pytest.raises(ValueError, match="share memory"):
        flat.step(both[:4], both[2:], 0.1)
    assert flat.steps == 0


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="at least one parameter, not 0"):
        FlatOptimiser(Adam(), 0)
    flat = FlatOptimiser(Adam(), 1)
    one = np.ones(1, np.float32)
    for rate in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="learning_rate must be at least 0 and finite"):
            flat.step(one, one.copy(), rate)
    for weight in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight must be above 0 and finite"):
            flat.accumulate(one, weight)
    assert flat.steps == 0
