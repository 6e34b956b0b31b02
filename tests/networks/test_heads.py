"""Heads against torch.distributions and autograd, as plain Python and as compiled for learners."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given
from hypothesis import strategies as some
from scalars import held

from velocirl.engine import random
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.networks.heads import categorical, gaussian, head_for, multi_discrete
from velocirl.networks.joint import joint

HEADS = {
    "categorical 2": (categorical(2), (2,)),
    "categorical 7 masked": (categorical(7, masked=True), (7,)),
    "multi_discrete": (multi_discrete((3, 1, 5)), (3, 1, 5)),
    "multi_discrete masked": (multi_discrete((3, 1, 5), masked=True), (3, 1, 5)),
    "gaussian": (gaussian(3), ()),
    "joint": (joint(categorical(4), gaussian(2)), (4,)),
    "joint masked": (joint(multi_discrete((3, 1, 5), masked=True), gaussian(2)), (3, 1, 5)),
}
heads = pytest.mark.parametrize("name", HEADS)
discrete = pytest.mark.parametrize("name", [name for name in HEADS if not HEADS[name][0].numbers])
EXTRA = 2  # further columns of an output row, such as the value, which a head must leave alone
ROWS = 200


class Rows:
    """Everything that a head reads and writes, a row for each sample."""

    def __init__(self, name, seed=0, rows=ROWS):
        self.head, self.counts = HEADS[name]
        generator = np.random.default_rng(seed)
        self.output = generator.normal(0, 1.5, (rows, self.head.outputs + EXTRA)).astype(np.float32)
        self.mask = generator.integers(0, 2, (rows, self.head.options)).astype(np.int8)
        self.mask[:3] = 0  # nothing legal: everything is
        self.rng = random.streams(seed, rows)
        self.action = np.full((rows, self.head.action_size), -1, self.head.action_dtype)
        self.best = self.action.copy()
        self.drawn, self.log_probability, self.entropy = (np.zeros(rows, np.float32) for _ in range(3))
        self.gradient = np.full((rows, self.head.outputs + EXTRA), 7.0, np.float32)

    def arguments(self, policy_weight=1.0, entropy_weight=0.0):
        weights = np.array([policy_weight, entropy_weight], np.float32)
        return (self.output, self.mask, self.rng, self.action, self.best, self.drawn, self.log_probability,
                self.entropy, weights, self.gradient)  # fmt: skip

    def legal(self):
        """Which options may be taken, (rows, options)."""
        if not self.head.masked:
            return np.ones_like(self.mask, bool)
        legal = self.mask != 0
        for part in self.parts():
            legal[:, part] |= ~legal[:, part].any(axis=1, keepdims=True)
        return legal

    def parts(self):
        ends = np.cumsum(self.counts)
        return [slice(end - count, end) for end, count in zip(ends, self.counts, strict=True)]


def loop_of(head):
    sample, mode, evaluate, backward = head.sample, head.mode, head.evaluate, head.backward

    def loop(output, mask, rng, action, best, drawn, log_probability, entropy, weights, gradient):
        for i in range(len(output)):
            drawn[i] = sample(output[i], mask[i], rng[i], action[i])
            mode(output[i], mask[i], best[i])
            log_probability[i], entropy[i] = evaluate(output[i], mask[i], action[i], gradient[i])
            backward(output[i], mask[i], action[i], weights[0], weights[1], gradient[i])

    return loop


def run(rows, *weights, compiled=True):
    loop, arguments = loop_of(rows.head), rows.arguments(*weights)
    if compiled:
        loop = compile_loop(loop, arguments, learning_translator("heads"), before=lambda: None)
    loop(*arguments)
    return rows


def evaluate_one(name, output, mask, action, weights=(1.0, 0.3)):
    """Log-probability, entropy and gradient of one sample, in plain Python."""
    head = HEADS[name][0]
    output, mask = np.asarray(output, np.float32), np.asarray(mask, np.int8)
    action, gradient = np.asarray(action, head.action_dtype), np.zeros(head.outputs, np.float32)
    results = head.evaluate(output, mask, action, gradient)
    head.backward(output, mask, action, *weights, gradient)
    return *results, gradient


def torch_distributions(rows, output, forbidden=-math.inf):
    """Torch's distribution of each entry of the action, from outputs in double precision."""
    head = rows.head
    logits = output[:, : head.options].masked_fill(~torch.tensor(rows.legal()), forbidden)
    choices = [torch.distributions.Categorical(logits=logits[:, part]) for part in rows.parts()]
    means, deviations = (
        output[:, head.options : head.outputs].split(max(head.numbers, 1), 1) if head.numbers else (0, 0)
    )
    numbers = [torch.distributions.Normal(means[:, k], held(deviations[:, k]).exp()) for k in range(head.numbers)]
    return [*choices, *numbers]


def expected(rows, policy_weight, entropy_weight):
    output = torch.tensor(rows.output.astype(np.float64), requires_grad=True)
    actions = torch.tensor(rows.action.astype(np.float64))
    parts = torch_distributions(rows, output)
    log_probability = sum(part.log_prob(actions[:, k]) for k, part in enumerate(parts))
    entropy = sum(part.entropy() for part in parts)
    (policy_weight * log_probability + entropy_weight * entropy).sum().backward()
    gradient = output.grad[:, : rows.head.outputs]
    return log_probability.detach().numpy(), entropy.detach().numpy(), gradient.numpy()


@heads
@pytest.mark.parametrize(
    ("weights", "compiled"),
    [
        ((1.0, 0.0), True),
        ((0.0, 1.0), True),
        ((-0.7, 0.4), True),
        ((-0.7, 0.4), False),
        pytest.param((1.0, 0.0), False, marks=pytest.mark.slow),
        pytest.param((0.0, 1.0), False, marks=pytest.mark.slow),
    ],
)
def test_log_probability_entropy_and_gradient_are_torchs(name, weights, compiled):
    rows = run(Rows(name), *weights, compiled=compiled)
    log_probability, entropy, gradient = expected(rows, *weights)
    np.testing.assert_allclose(rows.log_probability, log_probability, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows.entropy, entropy, rtol=1e-5, atol=1e-5)
    tolerance = 1e-5 * max(1.0, np.abs(gradient).max())  # a narrow normal distribution has gradients of hundreds
    np.testing.assert_allclose(rows.gradient[:, : rows.head.outputs], gradient, rtol=1e-5, atol=tolerance)


@heads
def test_divergence_and_its_gradient_are_torchs(name):
    """Of a policy from an older one; the gradient is added to what is there."""
    rows, old = Rows(name), Rows(name)
    old.output = np.roll(rows.output, 1, 0)
    output = torch.tensor(rows.output.astype(np.float64), requires_grad=True)
    older = torch.tensor(old.output.astype(np.float64))
    pairs = zip(torch_distributions(rows, output, -1e9), torch_distributions(rows, older, -1e9), strict=True)
    divergence = sum(torch.distributions.kl_divergence(*pair) for pair in pairs)
    (0.7 * divergence).sum().backward()
    head, expected = rows.head, output.grad.numpy()[:, : rows.head.outputs]
    double, before = rows.output.astype(np.float64), old.output.astype(np.float64)
    for i in range(len(double)):
        found, gradient = head.divergence(double[i], before[i], rows.mask[i]), np.ones(head.outputs + 1)
        head.diverge(double[i], before[i], rows.mask[i], 0.7, gradient)
        np.testing.assert_allclose(found, divergence[i].item(), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(gradient[:-1] - 1.0, expected[i], rtol=1e-6, atol=1e-8)
        assert gradient[-1] == 1.0
        assert head.divergence(double[i], double[i], rows.mask[i]) == pytest.approx(0.0, abs=1e-12)


@heads
def test_further_columns_are_not_touched(name):
    rows, untouched = Rows(name), Rows(name)
    run(rows)
    np.testing.assert_array_equal(rows.output, untouched.output)
    np.testing.assert_array_equal(rows.mask, untouched.mask)
    np.testing.assert_array_equal(rows.gradient[:, rows.head.outputs :], 7.0)


@heads
def test_what_sample_says_is_what_evaluate_says(name):
    for compiled in (True, False):
        rows = run(Rows(name), compiled=compiled)
        np.testing.assert_allclose(rows.drawn, rows.log_probability, rtol=1e-6, atol=1e-6)


@heads
def test_compiled_code_does_what_plain_python_does(name):
    plain, compiled = (run(Rows(name, seed=5), 0.5, -0.2, compiled=compiled) for compiled in (False, True))
    np.testing.assert_array_equal(plain.rng, compiled.rng)
    choices = len(plain.counts)
    np.testing.assert_array_equal(plain.action[:, :choices], compiled.action[:, :choices])
    np.testing.assert_array_equal(plain.best, compiled.best)
    np.testing.assert_allclose(plain.action, compiled.action, rtol=1e-6, atol=2e-6)
    # Evaluated at the very same actions: the density of a narrow normal distribution would magnify their last digits.
    for i in range(ROWS):
        row = compiled.output[i], compiled.mask[i], compiled.action[i]
        log_probability, entropy, gradient = evaluate_one(name, *row, weights=(0.5, -0.2))
        assert compiled.log_probability[i] == pytest.approx(log_probability, rel=1e-6, abs=1e-6)
        assert compiled.entropy[i] == pytest.approx(entropy, rel=1e-6, abs=1e-6)
        assert compiled.gradient[i, : compiled.head.outputs] == pytest.approx(gradient, rel=1e-6, abs=1e-6)


@discrete
def test_sampled_frequencies_are_the_probabilities(name):
    rows, count = Rows(name), 40_000
    for case in (0, 5, 6):  # the first one has a mask that forbids everything
        many = Rows(name, rows=count)
        many.output[:], many.mask[:] = rows.output[case], rows.mask[case]
        run(many)
        parts = torch_distributions(many, torch.tensor(many.output[:1].astype(np.float64)).expand(count, -1))
        for k, part in enumerate(parts):
            probabilities = part.probs[0].numpy()
            frequencies = np.bincount(many.action[:, k], minlength=len(probabilities)) / count
            assert (frequencies[probabilities == 0] == 0).all()
            deviations = np.sqrt(probabilities * (1 - probabilities) / count)
            assert (np.abs(frequencies - probabilities) <= 5 * deviations + 1e-12).all()


@pytest.mark.parametrize("name", ["multi_discrete", "gaussian", "joint"])
def test_the_parts_of_an_action_are_independent(name):
    many = Rows(name, rows=40_000)
    many.output[:] = many.output[0]
    many.action = run(many).action[:, [0, 2]]
    assert abs(np.corrcoef(many.action.T)[0, 1]) < 5 / math.sqrt(40_000)


def test_gaussian_samples_have_their_mean_and_deviation():
    many = Rows("gaussian", rows=40_000)
    many.output[:, :6] = [-1.0, 0.0, 50.0, 0.5, -9.0, 7.0]  # the last two are held at -5 and 2
    actions = run(many).action.astype(np.float64)
    for k, (mean, log_deviation) in enumerate([(-1.0, 0.5), (0.0, -5.0), (50.0, 2.0)]):
        standard = (actions[:, k] - mean) / math.exp(log_deviation)
        assert abs(standard.mean()) < 5 / math.sqrt(40_000)
        assert abs(standard.var() - 1) < 5 * math.sqrt(2 / 40_000)


def test_a_held_deviation_gets_the_gradient_that_leads_back_and_one_at_the_bound_any():
    output, action = [0.0, 0.0, 0.0, -5.001, 2.001, -5.0], [0.001, 1.0, 0.001]
    _, entropy, gradient = evaluate_one("gaussian", output, [], action)
    outwards, back = 1.0 / math.exp(2) ** 2 - 1 + 0.3, (0.001 / math.exp(-5)) ** 2 - 1 + 0.3
    assert outwards < 0  # descent would raise what is too high already
    assert gradient[3:5].tolist() == pytest.approx([back, 0.0], rel=1e-5)
    turned = evaluate_one("gaussian", output, [], action, weights=(-1.0, -0.3))[2]
    assert turned[3:5].tolist() == pytest.approx([0.0, -outwards], rel=1e-5)
    assert gradient[5] == pytest.approx((0.001 / math.exp(-5)) ** 2 - 1 + 0.3, rel=1e-5)
    assert gradient[:2] == pytest.approx([0.001 * math.exp(10), math.exp(-4)], rel=1e-5)
    assert entropy == pytest.approx(-8 + 3 * 0.5 * math.log(2 * math.pi * math.e), rel=1e-6)


@pytest.mark.parametrize("beyond", [-7.0, 4.0])
def test_a_free_deviation_beyond_its_bounds_comes_back(beyond):
    """Descent on -log p of normal numbers, whose deviation is 1, from where a clamp would have no gradient."""
    head, numbers, log_deviation = HEADS["gaussian"][0], np.random.default_rng(0).normal(size=(1000, 3)), beyond
    for action in numbers:
        output, gradient = np.array([0.0, 0.0, 0.0, *[log_deviation] * 3]), np.zeros(6)
        head.evaluate(output, [], action, gradient)
        head.backward(output, [], action, -1.0, 0.0, gradient)
        log_deviation -= 0.01 * np.clip(gradient[3:].mean(), -10, 10)
    assert abs(log_deviation) < 0.2


@discrete
def test_the_mode_is_the_most_probable_legal_option(name):
    rows = run(Rows(name))
    logits = np.where(rows.legal(), rows.output[:, : rows.head.outputs], -np.inf)
    for k, part in enumerate(rows.parts()):
        np.testing.assert_array_equal(rows.best[:, k], logits[:, part].argmax(axis=1))


def test_the_mode_of_a_gaussian_is_its_mean():
    rows = run(Rows("gaussian"))
    np.testing.assert_array_equal(rows.best, rows.output[:, :3])


def test_the_mode_of_choices_and_numbers_is_that_of_each():
    rows = run(Rows("joint masked"))
    alone = run(Rows("multi_discrete masked"))
    logits = np.where(rows.legal(), rows.output[:, :9], -np.inf)
    for k, part in enumerate(rows.parts()):
        np.testing.assert_array_equal(rows.best[:, k], logits[:, part].argmax(axis=1))
    np.testing.assert_array_equal(rows.best[:, 3:], rows.output[:, 9:11])
    assert alone.head.options == rows.head.options == 9


def test_choices_beside_numbers_are_legal_and_what_is_forbidden_gets_no_gradient():
    rows = run(Rows("joint masked"), 1.0, 0.5)
    legal = rows.legal()
    for k, part in enumerate(rows.parts()):
        assert np.take_along_axis(legal[:, part], rows.action[:, k : k + 1].astype(int), axis=1).all()
    assert (rows.gradient[:, :9][~legal] == 0.0).all()
    assert (rows.gradient[:, 9:11] != 0.0).all()


def test_random_actions_of_choices_and_numbers():
    head, rng = joint(multi_discrete((3, 2), masked=True), gaussian(2)), random.streams(0, 1)[0]
    drawn = np.zeros((2000, 4), np.float32)
    for action in drawn:
        head.draw(np.array([1, 0, 1, 1, 1], np.int8), rng, action)
    assert np.unique(drawn[:, 0]).tolist() == [0, 2]
    assert np.unique(drawn[:, 1]).tolist() == [0, 1]
    assert -1 <= drawn[:, 2:].min() < -0.9 < 0.9 < drawn[:, 2:].max() <= 1


@discrete
def test_forbidden_options_are_never_taken_and_have_no_gradient(name):
    rows = Rows(name)
    rows.output[::2] += 1e4 * ~np.pad(rows.legal(), ((0, 0), (0, EXTRA)), constant_values=True)[::2]
    run(rows, 1.0, 0.5)
    legal = rows.legal()
    for k, part in enumerate(rows.parts()):
        assert np.take_along_axis(legal[:, part], rows.action[:, k : k + 1], axis=1).all()
    assert (rows.gradient[:, : rows.head.outputs][~legal] == 0.0).all()
    assert np.isfinite(rows.log_probability).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_rounding_at_the_end_of_the_sum_stays_legal(compiled):
    """The last options are forbidden, or of probability 0: the largest uniform number must not fall upon them."""
    rows = Rows("categorical 7 masked", rows=200)
    rows.rng[:] = [0, 2**64 - 1]  # of which the next uniform number is the largest below 1
    rows.mask[:] = [1, 1, 1, 1, 1, 0, 0]
    rows.output[100:, 4] = -np.inf
    run(rows, compiled=compiled)
    np.testing.assert_array_equal(rows.action[:100, 0], 4)
    np.testing.assert_array_equal(rows.action[100:, 0], 3)


def test_a_threshold_beyond_the_sum_takes_the_last_option_of_any_weight(monkeypatch):
    """Whatever a compiler makes of the two sums of the weights, which then may differ in their last digit."""
    monkeypatch.setattr(random, "uniform", lambda rng: 1.001)
    rows = run(Rows("categorical 7 masked"), compiled=False)
    np.testing.assert_array_equal(rows.action[:, 0], 6 - rows.legal()[:, ::-1].argmax(axis=1))


def test_an_illegal_action_has_a_huge_negative_log_probability_and_pulls_nothing():
    log_probability, _, gradient = evaluate_one("categorical 7 masked", range(7), [1, 1, 1, 0, 1, 1, 1], [3])
    assert -math.inf < log_probability < -1e29
    assert gradient[3] == 0.0
    assert np.isfinite(gradient).all()


logits = some.one_of(
    some.floats(-50, 50, width=32), some.sampled_from([-math.inf, math.inf, -1e30, 1e30, 0.0, -3.4e38, 3.4e38])
)


@given(some.lists(logits, min_size=9, max_size=9), some.lists(some.integers(0, 1), min_size=9, max_size=9), some.data())
def test_no_mask_and_no_logits_give_a_nan(output, mask, data):
    for name in ("multi_discrete", "multi_discrete masked"):
        for compiled in (True, False):
            rows = Rows(name, seed=data.draw(some.integers(0, 2**32)), rows=1)
            rows.output[0, :9], rows.mask[0] = output, mask
            run(rows, 1.0, 0.5, compiled=compiled)
            for part, column in zip(rows.parts(), rows.action[0], strict=True):
                assert rows.legal()[0, part][column]
            for values in (rows.drawn, rows.log_probability, rows.entropy, rows.gradient):
                assert np.isfinite(values).all()
            assert rows.drawn[0] == pytest.approx(rows.log_probability[0], rel=1e-6, abs=2e-6)
            assert rows.entropy[0] >= -1e-5
            forbidden = ~rows.legal()[0]
            assert (rows.gradient[0, :9][forbidden] == 0).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_nan_shows_in_the_log_probability_and_the_action_is_still_legal(compiled):
    for columns in ([2], [0, 1, 2, 3, 4, 5, 6]):
        rows = Rows("categorical 7 masked")
        rows.output[:, columns] = np.nan
        run(rows, compiled=compiled)
        assert np.take_along_axis(rows.legal(), rows.action, axis=1).all()
        assert np.take_along_axis(rows.legal(), rows.best, axis=1).all()
        seen = rows.legal()[:, columns].any(axis=1)
        assert np.isnan(rows.drawn[seen]).all()
        assert np.isnan(rows.log_probability[seen]).all()


def test_an_empty_mask_will_do_where_none_is_read():
    head = categorical(3)
    nothing, action, scratch = np.empty(0, np.int8), np.zeros(1, np.int32), np.zeros(3, np.float32)
    output = np.array([0.0, 1.0, 2.0], np.float32)
    drawn = head.sample(output, nothing, random.streams(1, 1)[0], action)
    assert drawn == pytest.approx(head.evaluate(output, nothing, action, scratch)[0], abs=1e-6)


def described(head):
    return head.name, head.outputs, head.action_size, head.action_dtype, head.masked


@pytest.mark.parametrize(
    ("space", "masked", "description"),
    [
        (Discrete(4), False, ("categorical", 4, 1, "int32", False)),
        (Discrete(4), True, ("categorical", 4, 1, "int32", True)),
        (MultiDiscrete([2, 3]), True, ("multi_discrete", 5, 2, "int32", True)),
        (MultiBinary(3), False, ("multi_discrete", 6, 3, "int32", False)),
        (Box(-1, 1, (3,)), False, ("gaussian", 6, 3, "float32", False)),
        (Tuple((Discrete(3), Box(-1, 1, (2,)))), False, ("joint", 7, 3, "float32", False)),
        (Dict(a=Box(-1, 1, (2, 2)), b=MultiBinary(2), c=Discrete(3)), True, ("joint", 15, 7, "float32", True)),
        (Dict(a=Dict(b=Discrete(3, start=2)), c=MultiDiscrete([2, 2])), True, ("multi_discrete", 7, 3, "int32", True)),
        (Tuple((Box(-1, 1, ()), Box(0, 1, (2, 1)))), False, ("gaussian", 6, 3, "float32", False)),
    ],
)
def test_a_space_has_its_head(space, masked, description):
    assert described(head_for(space, masked)) == description


@pytest.mark.parametrize(
    ("space", "masked", "message"),
    [
        (Box(-1, 1, (2, 2)), False, "no head acts in .*flat"),
        (Box(0, 255, (2,), np.uint8), False, "Box of floats"),
        (Text(3), False, "no head acts in Text"),
        (Dict(a=Text(3)), False, "no head acts in Dict.*part 'a' is Text"),
        (MultiDiscrete([[2, 3], [2, 3]]), False, "flat MultiDiscrete"),
        (Discrete(3, start=1), False, "start at 0.*shift"),
        (Box(-1, 1, (2,)), True, "cannot be masked"),
        (Tuple((Box(-1, 1, (2,)),)), True, "cannot be masked"),
        (Tuple((Discrete(2), Box(0, 9, (2,), np.int32))), False, "no head acts in Tuple.*part '1' is Box"),
        (Dict(), False, "has no parts"),
    ],
)
def test_other_spaces_are_refused(space, masked, message):
    with pytest.raises(ValueError, match=message):
        head_for(space, masked)


def test_heads_without_choices_are_refused():
    for make in (
        lambda: categorical(0),
        lambda: multi_discrete(()),
        lambda: multi_discrete((2, 0)),
        lambda: gaussian(0),
    ):
        with pytest.raises(ValueError, match="at least one"):
            make()
