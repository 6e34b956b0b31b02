"""Optimisers: each rule against torch in double precision, their hyper-parameters, and their text."""

import dataclasses
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from velocirl.optim.flat import FlatOptimiser
from velocirl.optim.optimisers import OPTIMISERS, SGD, Adam, AdamW, RMSProp, optimiser_from

SIZE = 37  # no multiple of a vector's width
RATE = 0.05
TORCH = torch.optim

# Each optimiser with torch's, and the names of torch's state vectors in the order of our moments.
PAIRS = [
    (Adam(epsilon=1e-8), lambda p: TORCH.Adam(p, RATE, eps=1e-8), ["exp_avg", "exp_avg_sq"]),
    (Adam(0.5, 0.9, 1e-3), lambda p: TORCH.Adam(p, RATE, (0.5, 0.9), eps=1e-3), ["exp_avg", "exp_avg_sq"]),
    (AdamW(), lambda p: TORCH.AdamW(p, RATE, eps=1e-5, weight_decay=0.01), ["exp_avg", "exp_avg_sq"]),
    (AdamW(weight_decay=0.3), lambda p: TORCH.AdamW(p, RATE, eps=1e-5, weight_decay=0.3), ["exp_avg", "exp_avg_sq"]),
    (SGD(), lambda p: TORCH.SGD(p, RATE), []),
    (SGD(weight_decay=0.2), lambda p: TORCH.SGD(p, RATE, weight_decay=0.2), []),
    (SGD(momentum=0.9), lambda p: TORCH.SGD(p, RATE, momentum=0.9), ["momentum_buffer"]),
    (
        SGD(momentum=0.8, nesterov=True, weight_decay=0.1),
        lambda p: TORCH.SGD(p, RATE, momentum=0.8, nesterov=True, weight_decay=0.1),
        ["momentum_buffer"],
    ),
    (RMSProp(), lambda p: TORCH.RMSprop(p, RATE, eps=1e-5), ["square_avg"]),
    (
        RMSProp(alpha=0.9, epsilon=1e-2, momentum=0.7),
        lambda p: TORCH.RMSprop(p, RATE, alpha=0.9, eps=1e-2, momentum=0.7),
        ["square_avg", "momentum_buffer"],
    ),
]


def gradients(steps, size=SIZE, seed=0):
    """Gradients of very different sizes, with parameters that have none."""
    generator = np.random.default_rng(seed)
    scales = 10.0 ** generator.uniform(-3, 2, size)
    scales[::7] = 0
    return (generator.standard_normal((steps, size)) * scales).astype(np.float32)


@pytest.mark.parametrize(("ours", "theirs", "names"), PAIRS, ids=[str(pair[0]) for pair in PAIRS])
def test_many_steps_are_those_of_torch(ours, theirs, names):
    start = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)
    parameters = start.copy()
    flat = FlatOptimiser(ours, SIZE)
    oracle = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    reference = theirs([oracle])
    for gradient in gradients(80):
        flat.step(parameters, gradient, RATE)
        oracle.grad = torch.tensor(gradient, dtype=torch.float64)
        reference.step()
    wanted = oracle.detach().numpy()
    # A parameter may pass near zero; its error is in proportion to the way it went, not to where it is.
    size = np.abs(wanted) + np.abs(wanted - start)
    assert np.count_nonzero(np.abs(wanted - start) > 0.01) > SIZE // 2
    assert (np.abs(parameters - wanted) / size).max() < 1e-5
    assert flat.moments.shape == (ours.slots, SIZE) == (len(names), SIZE)
    for moments, name in zip(flat.moments, names, strict=True):
        wanted = reference.state[oracle][name].numpy()
        np.testing.assert_allclose(moments, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("before", [0, 10, 999, 1_000_000])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.999, 0.999999), (0.99999, 0.9999999)])
def test_bias_correction_is_accurate_at_any_step(betas, before):
    """In single precision 0.999999 ** 1e6 is wrong by some percent, and 1 - 0.9999999 by a fifth."""
    generator = np.random.default_rng(2)
    flat = FlatOptimiser(Adam(*betas, epsilon=1e-8), SIZE)
    mean, square = generator.standard_normal(SIZE), generator.uniform(0.5, 2.0, SIZE)
    mean, square = mean.astype(np.float32) * (before > 0), square.astype(np.float32) * (before > 0)
    state = flat.state()
    flat.load_state({**state, "moments": np.stack([mean, square]), "steps": np.array(before)})
    oracle = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    reference = torch.optim.Adam([oracle], RATE, betas, eps=1e-8)
    reference.state[oracle] = {
        "step": torch.tensor(float(before), dtype=torch.float64),
        "exp_avg": torch.tensor(mean, dtype=torch.float64),
        "exp_avg_sq": torch.tensor(square, dtype=torch.float64),
    }
    parameters = np.zeros(SIZE, np.float32)
    for gradient in generator.standard_normal((3, SIZE)).astype(np.float32):
        flat.step(parameters, gradient, RATE)
        oracle.grad = torch.tensor(gradient, dtype=torch.float64)
        reference.step()
    wanted = oracle.detach().numpy()
    np.testing.assert_allclose(parameters, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20), st.floats(1e-5, 0.1))
def test_a_step_of_adam_is_no_longer_than_its_learning_rate_when_gradients_agree(numbers, rate):
    gradient = np.array(numbers, np.float32)
    parameters = np.zeros_like(gradient)
    flat = FlatOptimiser(Adam(), len(gradient))
    for step in range(1, 4):
        flat.step(parameters, gradient, rate)
        assert (np.abs(parameters) <= step * rate * (1 + 1e-5)).all()
        assert (parameters * gradient <= 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(beta1=1.0), "Adam: beta1 must be at least 0 and below 1, not 1.0"),
        (lambda: Adam(beta1=nan), "beta1"),
        (lambda: Adam(beta2=-0.1), "beta2"),
        (lambda: Adam(epsilon=0.0), "Adam: epsilon must be at least 1e-30"),
        (lambda: Adam(epsilon=inf), "epsilon"),
        (lambda: AdamW(weight_decay=-1.0), "AdamW: weight_decay must be at least 0 and finite, not -1.0"),
        (lambda: AdamW(beta2=2.0), "AdamW: beta2"),
        (lambda: SGD(momentum=1.0), "momentum"),
        (lambda: SGD(nesterov=True), "nesterov must be False where there is no momentum"),
        (lambda: SGD(weight_decay=nan), "weight_decay"),
        (lambda: RMSProp(alpha=1.5), "alpha"),
        (lambda: RMSProp(epsilon=-1e-8), "epsilon"),
        (lambda: RMSProp(momentum=-0.5), "momentum"),
    ],
)
def test_impossible_hyper_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_hyper_parameters_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Adam().beta1 = 0.5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("text", "optimiser"),
    [
        ("adam", Adam()),
        (" Adam ( beta1 = 0.5 , epsilon=1e-8 ) ", Adam(beta1=0.5, epsilon=1e-8)),
        ("adam(0.5, 0.9)", Adam(beta1=0.5, beta2=0.9)),
        ("adamw(weight_decay=0.02)", AdamW(weight_decay=0.02)),
        ("sgd(momentum=0.9, nesterov=true)", SGD(momentum=0.9, nesterov=True)),
        ("sgd(0.9, False)", SGD(momentum=0.9)),
        ("rmsprop()", RMSProp()),
    ],
)
def test_text(text, optimiser):
    assert optimiser_from(text) == optimiser
    assert type(optimiser_from(text)) is type(optimiser)
    assert optimiser_from(str(optimiser)) == optimiser


def test_the_text_shows_what_differs_from_the_defaults():
    assert str(Adam()) == "adam"
    assert str(AdamW(beta1=np.float64(0.8), weight_decay=0.02)) == "adamw(beta1=0.8, weight_decay=0.02)"
    assert str(SGD(momentum=0.9, nesterov=True)) == "sgd(momentum=0.9, nesterov=true)"


below_one = st.floats(0, 1, exclude_max=True)
positive = st.floats(1e-30, 1e30)


@given(
    st.builds(Adam, below_one, below_one, positive)
    | st.builds(AdamW, below_one, below_one, positive, positive)
    | st.builds(SGD, st.floats(0.01, 0.99), st.booleans(), positive)
    | st.builds(RMSProp, below_one, positive, below_one)
)
def test_any_optimiser_is_what_its_text_says(optimiser):
    assert optimiser_from(str(optimiser)) == optimiser


def test_an_optimiser_is_given_back_as_it_is():
    optimiser = SGD(momentum=0.3)
    assert optimiser_from(optimiser) is optimiser


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adm", "there is no optimiser 'adm': did you mean 'adam'?"),
        ("rmsprob(alpha=0.9)", "did you mean 'rmsprop'?"),
        ("lion", "there is no optimiser 'lion'; there are adam, adamw, sgd, rmsprop"),
        ("adam(beta=0.9)", "adam has no argument 'beta': did you mean 'beta"),
        ("adam(zzz=0.9)", "adam has no argument 'zzz'; there are beta1, beta2, epsilon"),
        ("adam(weight_decay=0.1)", "adam has no argument 'weight_decay'"),
        ("adam(name=3)", "adam has no argument 'name'"),
        ("adam(beta1=high)", "adam: beta1 must be a number, not 'high'"),
        ("adam(beta1=__import__)", "adam: beta1 must be a number"),
        ("sgd(momentum=0.9, nesterov=1)", "sgd: nesterov must be true or false, not '1'"),
        ("adam(beta1=nan)", "Adam: beta1 must be at least 0"),
        ("adam(beta1=0.5, beta1=0.6)", "adam: beta1 is given twice"),
        ("adam(0.5, beta1=0.6)", "adam: beta1 is given twice"),
        ("adam(beta1=0.5, 0.6)", "'0.6' follows a named argument"),
        ("adam(1, 2, 3, 4)", "adam takes at most 3 arguments: '4' is one too many"),
        ("adam(beta1=)", "cannot read the argument 'beta1='"),
        ("adam(beta1=0.5,)", "cannot read the argument ''"),
        ("adam(0.1=0.5)", "cannot read the argument '0.1=0.5'"),
        ("adam sgd", "names 2 optimisers"),
        ("adam(beta1=0.5", "cannot read the optimiser 'adam(beta1=0.5' at '(beta1=0.5'"),
        ("", "cannot read the optimiser ''"),
        ("0.9", "cannot read the optimiser '0.9'"),
        ("adam(float(1))", "cannot read the optimiser"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_hint(text, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is checked below, without a pattern
        optimiser_from(text)
    assert message in str(refused.value)


def test_every_optimiser_is_found_by_its_name():
    assert {name: type(optimiser_from(name)) for name in OPTIMISERS} == OPTIMISERS
    assert set(OPTIMISERS) == {"adam", "adamw", "sgd", "rmsprop"}
