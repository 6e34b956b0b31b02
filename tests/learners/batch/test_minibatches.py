"""The scalar functions of an update: in plain Python by hand, and compiled against torch autograd."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from velocirl.algorithms.online.ppo_loss import APPROX_KL, LossSettings, ppo_loss
from velocirl.buffers.rollout import GOES_ON, TERMINATED, TRUNCATED, allocate_rollout, sample_type
from velocirl.training.mapped_updating import (
    APPLIES,
    COUNTS,
    DISCOUNT,
    FAULT,
    GATHERED,
    GOOD,
    GROWTH_INTERVAL,
    LARGEST_SCALE,
    LEARNING_RATE,
    LOSS_SCALE,
    MINIBATCHES,
    NORMS,
    NUMBERS,
    PLACE,
    SAMPLES,
    STEPS,
    STOPPED,
    TAKEN,
    Batch,
    Learnt,
    Limits,
    Shape,
    shuffled,
    updating,
)  # fmt: skip
from velocirl.training.torch_device import CPUDevice
from velocirl.training.updating import METRICS

from velocirl.engine import random
from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.networks.heads import categorical, gaussian, multi_discrete
from velocirl.optim.optimisers import FACTORS, optimiser_from

SETTINGS = LossSettings(*map(np.float32, (0.2, 0.3, 0.0, 0.7, 0.05)))
FREE = Limits(max_grad_norm=0.0, max_grad_value=0.0, target_kl=0.0, normalise=0.0, scaling=0.0)
HEADS = {
    "categorical": categorical(3),
    "multi-discrete masked": multi_discrete((2, 4), masked=True),
    "gaussian": gaussian(2),
}


def shape_of(copies=4, horizon=6, minibatches=2, unit=1, parameters=5):
    units = copies * horizon // unit
    return Shape(copies, horizon, copies * horizon // minibatches, units, unit, parameters)


def batch_of(shape, head, seeds=1, inputs=1):
    """The memory of an update: nothing is drawn, nothing counted, scales are 1."""
    kind = sample_type(inputs, head.action_size, head.action_dtype, head.outputs if head.masked else 0)
    rows, outputs = seeds * shape.rows, head.outputs + 1
    batch = Batch(
        samples=allocate_rollout(shape.horizon + 1, seeds * shape.copies, kind).view(np.recarray),
        order=np.zeros((seeds, shape.units), np.int32),
        counts=np.zeros((seeds, COUNTS), np.int64),
        numbers=np.zeros((seeds, NUMBERS)),
        inputs=np.full((rows, inputs), -1, np.float32),
        starts=np.full(rows, -1, np.float32),
        advantages=np.zeros(rows, np.float32),
        mean=np.zeros(seeds, np.float32),
        deviation=np.ones(seeds, np.float32),
        outputs=np.zeros((rows, outputs), np.float32),
        output_gradient=np.zeros((rows, outputs), np.float32),
        metrics=np.zeros((rows, METRICS), np.float32),
        sums=np.zeros((seeds, METRICS), np.float32),
        totals=np.zeros((seeds, METRICS)),
    )
    batch.numbers[:, LOSS_SCALE] = 1
    return batch


def learnt_of(shape, seeds=1, optimiser="sgd"):
    rule = optimiser_from(optimiser)
    size = seeds * shape.parameters
    return Learnt(
        parameters=np.arange(size, dtype=np.float32),
        gradient=np.ones(size, np.float32),
        moments=np.zeros((max(rule.slots, 1), size), np.float32),
        settings=rule.settings(),
        factors=np.zeros((seeds, FACTORS), np.float32),
        norm=np.zeros(seeds),
    )


def functions_of(head=HEADS["categorical"], optimiser="sgd", recurrent=False):
    return updating(ppo_loss(head), optimiser_from(optimiser).rule, head, APPROX_KL, recurrent)


def keys_of(seed, sets=1):
    return np.random.default_rng(seed).integers(0, 2**64, (sets, 4), np.uint64)


@pytest.fixture(scope="module")
def orders():
    """`orders(count, keys)`: the order of every set of keys, compiled."""

    def fill(order, keys):
        for k in range(len(keys)):
            for u in range(order.shape[1]):
                order[k, u] = shuffled(u, order.shape[1], keys[k])

    example = np.zeros((1, 2), np.int32), keys_of(0)
    loop = compile_loop(fill, example, learning_translator("order"), before=lambda: None)

    def orders(count, keys):
        order = np.full((len(keys), count), -1, np.int32)
        loop(order, keys)
        return order

    return orders


def test_an_order_is_a_permutation(orders):
    for count in (*range(1, 301), 511, 512, 513, 4095, 4096, 4097, 10_007, 65_536, 1_000_003):
        for order in orders(count, keys_of(count, sets=3)):
            np.testing.assert_array_equal(np.bincount(order, minlength=count), 1, err_msg=str(count))


def test_extreme_keys_give_permutations_too(orders):
    keys = np.array([[0] * 4, [2**64 - 1] * 4, [2**63] * 4, [1] * 4], np.uint64)
    for count in (1, 2, 3, 96, 129, 1000):
        for order in orders(count, keys):
            assert sorted(order.tolist()) == list(range(count))


def test_plain_python_draws_the_same_order(orders):
    for count in (1, 2, 7, 64, 97):
        keys = keys_of(count)
        assert [int(shuffled(u, count, keys[0])) for u in range(count)] == orders(count, keys)[0].tolist()


def test_other_keys_another_order(orders):
    drawn = orders(96, keys_of(1, sets=500))
    assert len(np.unique(drawn, axis=0)) == 500
    assert set(map(tuple, orders(3, keys_of(2, sets=500)))) == {
        (0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0),
    }  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 5, 10, 12, 16, 96, 128])
def test_every_place_is_as_likely_as_any(orders, count):
    """Chi-square over the table of who comes where; with random orders it has (count - 1)^2 degrees of freedom."""
    sets = 20_000
    drawn = orders(count, keys_of(count, sets))
    table = np.stack([np.bincount(drawn[:, u], minlength=count) for u in range(count)])
    expected = sets / count
    statistic = ((table - expected) ** 2 / expected).sum() * (count - 1) / count
    assert 1e-3 < stats.chi2.sf(statistic, (count - 1) ** 2) < 0.999


@pytest.mark.parametrize(("copies", "horizon"), [(8, 16), (7, 13), (32, 32)])
def test_minibatches_are_mixed(orders, copies, horizon):
    """How many samples of copy 0, and of step 0, are in the first quarter: as in a draw without replacement."""
    count, sets = copies * horizon, 4000
    rows = count // 4
    drawn = orders(count, keys_of(3, sets))[:, :rows]
    for chosen, size in ((drawn % copies == 0, horizon), (drawn // copies == 0, copies)):
        found = chosen.sum(axis=1)
        expected = stats.hypergeom(count, size, rows)
        assert found.mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(sets))
        assert 0.9 < found.var() / expected.var() < 1.1


@pytest.mark.parametrize("unit", [1, 6])
def test_every_sample_is_gathered_once_in_an_epoch(unit):
    """By plain Python, for two agents side by side; whole copies lie step by step, as a recurrent network reads."""
    shape, head = shape_of(copies=4, horizon=6, minibatches=2, unit=unit), HEADS["categorical"]
    batch, functions = batch_of(shape, head, seeds=2, inputs=2), functions_of(recurrent=unit > 1)
    step, copy = np.indices((6, 8))
    batch.samples.observation[:6, :, 0], batch.samples.observation[:6, :, 1] = step, copy
    batch.samples.advantage[:6] = 100 * step + copy
    batch.samples.ended[2, 1], batch.samples.ended[4, 6] = TERMINATED, TRUNCATED
    rng, keys, epochs = random.streams(3, 2), np.zeros((2, 4), np.uint64), []
    for _ in range(2):
        for s in range(2):
            functions.draw_keys(s, keys, rng, batch)
        for q in range(2 * shape.units):
            functions.draw(q, keys, batch, shape)
        seen = []
        for _ in range(2):
            for n in range(2 * shape.rows * 2):
                functions.gather(n, batch, shape)
            t, i = batch.inputs[:, 0].astype(int), batch.inputs[:, 1].astype(int)
            assert np.all(i[: shape.rows] < 4)  # the rows of the first agent, then those of the second
            assert np.all(i[shape.rows :] >= 4)
            np.testing.assert_array_equal(batch.advantages, 100 * t + i)
            if unit > 1:
                np.testing.assert_array_equal(t.reshape(2, 6, 2), np.arange(6)[:, None] + np.zeros((2, 6, 2)))
                first = i.reshape(2, 6, 2)
                np.testing.assert_array_equal(first, np.broadcast_to(first[:, :1], first.shape))
                np.testing.assert_array_equal(batch.starts == 1, ((t == 3) & (i == 1)) | ((t == 5) & (i == 6)))
            seen += list(zip(t, i, strict=True))
            batch.counts[:, PLACE] += 1
        assert len(set(seen)) == len(seen) == 48
        epochs.append(seen)
    assert epochs[0] != epochs[1]


def test_states_are_those_at_the_beginning_of_the_drawn_copies():
    shape = shape_of(copies=4, horizon=6, minibatches=2, unit=6)
    batch, functions = batch_of(shape, HEADS["categorical"]), functions_of(recurrent=True)
    batch.order[0] = [2, 0, 3, 1]
    start, state = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((2, 3), np.float32)
    for place, copies in ((0, [2, 0]), (1, [3, 1])):
        batch.counts[0, PLACE] = place
        for n in range(6):
            functions.gather_state(n, batch, shape, start, state)
        np.testing.assert_array_equal(state, start[copies])


def fill_samples(batch, shape, head, generator):
    """A rollout whose ratios and values lie on both sides of their clips."""
    samples = batch.samples[: shape.horizon]
    size = samples.shape
    if head.action_dtype == "float32":
        samples.action[...] = generator.normal(0, 1, (*size, head.action_size))
    else:
        first = 0
        samples.mask[...] = generator.integers(0, 2, samples.mask.shape)
        for part, count in enumerate(head.counts):
            samples.action[..., part] = generator.integers(0, count, size)
            if head.masked:
                np.put_along_axis(samples.mask, first + samples.action[..., part : part + 1].astype(int), 1, -1)
            first += count
    samples.log_probability[...] = generator.normal(-2 * head.action_size, 0.5, size)
    for name in ("value", "target", "advantage"):
        samples[name][...] = generator.normal(0, 1, size)


def torch_loss(head, outputs, samples, advantages):
    """The mean loss of a minibatch, written out in torch, and the smoothed divergence of each row."""
    policy, value = outputs[:, :-1], outputs[:, -1]
    old = {name: torch.tensor(samples[name].astype(np.float64)) for name in ("log_probability", "value", "target")}
    if head.action_dtype == "float32":
        size = head.action_size
        normal = torch.distributions.Normal(policy[:, :size], policy[:, size:].clamp(-5, 2).exp())
        log_probability = normal.log_prob(torch.tensor(samples["action"].astype(np.float64))).sum(1)
        entropy = normal.entropy().sum(1)
    else:
        actions = torch.tensor(samples["action"].astype(np.int64))
        logits = policy
        if head.masked:
            logits = policy.masked_fill(torch.tensor(samples["mask"]) == 0, -1e30)
        parts = [torch.distributions.Categorical(logits=one) for one in logits.split(head.counts, 1)]
        log_probability = sum(part.log_prob(actions[:, k]) for k, part in enumerate(parts))
        entropy = sum(-(part.probs * part.logits).sum(1) for part in parts)
    clip, value_clip, _, value_coefficient, entropy_coefficient = map(float, SETTINGS)
    log_ratio = log_probability - old["log_probability"]
    ratio = log_ratio.exp()
    kept = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    near = old["value"] + (value - old["value"]).clamp(-value_clip, value_clip)
    error = torch.maximum((value - old["target"]) ** 2, (near - old["target"]) ** 2) / 2
    loss = -kept.mean() + value_coefficient * error.mean() - entropy_coefficient * entropy.mean()
    return loss, (ratio - 1 - log_ratio).detach().numpy()


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_the_loss_of_a_minibatch(name, normalise):
    """Compiled, for two agents: the gradient of the mean loss over the rows that were drawn, times the loss scale."""
    head, generator = HEADS[name], np.random.default_rng(4)
    shape = shape_of(copies=16, horizon=24, minibatches=2)
    batch, functions = batch_of(shape, head, seeds=2), functions_of(head)
    fill_samples(batch, shape, head, generator)
    batch.order[...] = [generator.permutation(shape.units) for _ in range(2)]
    batch.outputs[...] = generator.normal(0, 0.7, batch.outputs.shape)
    batch.counts[:, PLACE] = 1
    batch.numbers[:, LOSS_SCALE] = 1, 256
    drawn = [
        batch.samples[: shape.horizon, s * 16 : (s + 1) * 16].reshape(-1)[batch.order[s, shape.rows :]]
        for s in range(2)
    ]
    for s, samples in enumerate(drawn):
        batch.mean[s], batch.deviation[s] = samples["advantage"].mean(), samples["advantage"].std(ddof=1)
    device = CPUDevice(1)
    mapper = device.mapper(device.learning_translator("learner"))
    limits = FREE._replace(normalise=float(normalise))
    plain = batch._replace(samples=batch.samples.view(np.ndarray))
    mapper.bind(functions.lose, 2 * shape.rows, plain, shape, SETTINGS, limits)()
    for s, samples in enumerate(drawn):
        rows = slice(s * shape.rows, (s + 1) * shape.rows)
        outputs = torch.tensor(batch.outputs[rows].astype(np.float64), requires_grad=True)
        advantages = torch.tensor(samples["advantage"].astype(np.float64))
        if normalise:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss, divergence = torch_loss(head, outputs, samples, advantages)
        loss.backward()
        expected = outputs.grad.numpy() * batch.numbers[s, LOSS_SCALE]
        found = batch.output_gradient[rows]
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
        np.testing.assert_allclose(batch.metrics[rows, APPROX_KL], divergence, rtol=1e-4, atol=1e-4)


def test_losses_are_the_same_in_plain_python():
    head, generator = HEADS["categorical"], np.random.default_rng(5)
    shape = shape_of()
    batch, functions = batch_of(shape, head), functions_of(head)
    fill_samples(batch, shape, head, generator)
    batch.order[0] = generator.permutation(shape.units)
    batch.outputs[...] = generator.normal(0, 0.7, batch.outputs.shape)
    for r in range(shape.rows):
        functions.lose(r, batch, shape, SETTINGS, FREE)
    by_hand = batch.output_gradient.copy()
    device = CPUDevice(1)
    mapper = device.mapper(device.learning_translator("learner"))
    plain = batch._replace(samples=batch.samples.view(np.ndarray))
    mapper.bind(functions.lose, shape.rows, plain, shape, SETTINGS, FREE)()
    assert np.abs(by_hand).max() > 1e-3
    np.testing.assert_allclose(batch.output_gradient, by_hand, atol=1e-6)


def judged(norm, scale=1.0, scaling=0.0, good=0, stopped=0, fault=0):
    """One step of one agent, in plain Python."""
    shape = shape_of()
    batch, learnt, functions = batch_of(shape, HEADS["categorical"]), learnt_of(shape), functions_of()
    limits = FREE._replace(scaling=scaling)
    learnt.norm[0] = norm
    batch.numbers[0, LOSS_SCALE], batch.numbers[0, LEARNING_RATE] = scale, 0.5
    batch.counts[0, [GOOD, STOPPED, FAULT, GATHERED]] = good, stopped, fault, 3
    with np.errstate(invalid="ignore"):  # NumPy warns of what compiled code does not
        functions.judge(0, batch, learnt, limits)
    for p in range(shape.parameters):
        functions.descend(p, batch, learnt, shape, limits)
    assert batch.counts[0, GATHERED] == 0
    moved = learnt.parameters - np.arange(shape.parameters)
    return SimpleNamespace(
        counts=batch.counts[0], scale=batch.numbers[0, LOSS_SCALE], moved=moved, norms=batch.numbers[0, NORMS],
        taken=batch.numbers[0, TAKEN], applies=learnt.factors[0, APPLIES],
    )  # fmt: skip


def test_a_step():
    after = judged(norm=2.0)
    assert (after.counts[STEPS], after.taken, after.norms, after.applies) == (1, 1, 2, 1)
    np.testing.assert_array_equal(after.moved, -0.5)  # learning rate 0.5, gradient 1
    assert after.counts[FAULT] == 0
    assert after.scale == 1


@pytest.mark.parametrize("norm", [np.inf, np.nan, -np.inf])
def test_without_scaling_an_infinite_gradient_is_a_fault(norm):
    after = judged(norm=norm, scale=8.0)
    assert (after.counts[FAULT], after.counts[STEPS], after.taken, after.applies) == (1, 0, 0, 0)
    assert not after.moved.any()
    assert after.scale == 8


@pytest.mark.parametrize("norm", [np.inf, np.nan])
def test_an_overflow_of_fp16_halves_the_scale_and_skips_the_step(norm):
    after = judged(norm=norm, scale=2.0**16, scaling=1.0, good=1999)
    assert after.scale == 2.0**15
    assert (after.counts[FAULT], after.counts[STEPS], after.counts[GOOD], after.taken) == (0, 0, 0, 0)
    assert not after.moved.any()


def test_an_overflow_at_scale_one_is_a_fault():
    after = judged(norm=np.inf, scale=1.0, scaling=1.0)
    assert (after.counts[FAULT], after.scale) == (1, 1.0)
    assert not after.moved.any()


def test_the_scale_grows_after_many_good_steps():
    assert judged(norm=1.0, scale=4.0, scaling=1.0, good=GROWTH_INTERVAL - 2).scale == 4
    grown = judged(norm=1.0, scale=4.0, scaling=1.0, good=GROWTH_INTERVAL - 1)
    assert (grown.scale, grown.counts[GOOD], grown.counts[STEPS]) == (8, 0, 1)
    assert judged(norm=1.0, scale=LARGEST_SCALE, scaling=1.0, good=GROWTH_INTERVAL).scale == LARGEST_SCALE
    assert judged(norm=1.0, scale=4.0, good=GROWTH_INTERVAL).scale == 4


@pytest.mark.parametrize("flag", ["stopped", "fault"])
def test_after_a_stop_no_step_is_taken(flag):
    after = judged(norm=1.0, **{flag: 1})
    assert (after.counts[STEPS], after.taken, after.applies) == (0, 0, 0)
    assert not after.moved.any()


def test_agents_side_by_side_are_judged_apart():
    shape = shape_of()
    batch, learnt = batch_of(shape, HEADS["categorical"], seeds=3), learnt_of(shape, seeds=3)
    functions, limits = functions_of(), FREE._replace(max_grad_norm=0.5)
    learnt.norm[:] = np.nan, 0.25, 2.0
    batch.numbers[:, LEARNING_RATE] = 1, 1, 1
    for s in range(3):
        functions.judge(s, batch, learnt, limits)
    for p in range(3 * shape.parameters):
        functions.descend(p, batch, learnt, shape, limits)
    moved = (learnt.parameters - np.arange(15)).reshape(3, 5)
    np.testing.assert_allclose(moved, [[0] * 5, [-1] * 5, [-0.25] * 5], rtol=1e-5)  # a norm of 2 is held to 0.5
    assert batch.counts[:, FAULT].tolist() == [1, 0, 0]


@pytest.mark.parametrize(("gathered", "scale", "limit", "expected"), [
    (1, 1.0, 0.0, 6.0), (3, 1.0, 0.0, 2.0), (3, 4.0, 0.0, 0.5), (2, 1.0, 1.5, 1.5), (2, 1.0, 5.0, 3.0),
    (0, 1.0, 0.0, 6.0),
])  # fmt: skip
def test_scaling_of_the_gradient(gathered, scale, limit, expected):
    """The sum over minibatches, times the loss scale, becomes the mean; then each number is clipped."""
    shape = shape_of()
    batch, learnt = batch_of(shape, HEADS["categorical"]), learnt_of(shape)
    learnt.gradient[:] = 6.0, -6.0, 0.0, 6.0, -6.0
    batch.counts[0, GATHERED], batch.numbers[0, LOSS_SCALE] = gathered, scale
    for p in range(shape.parameters):
        functions_of().scale(p, batch, learnt, shape, FREE._replace(max_grad_value=limit))
    np.testing.assert_allclose(learnt.gradient, [expected, -expected, 0, expected, -expected])


def test_tally():
    shape, functions = shape_of(), functions_of()
    batch = batch_of(shape, HEADS["categorical"], seeds=2)
    batch.sums[:] = np.arange(2 * METRICS).reshape(2, METRICS)
    batch.sums[:, APPROX_KL] = shape.rows * 0.0149, shape.rows * 0.0151
    limits = FREE._replace(target_kl=0.01)
    for _ in range(2):
        for s in range(2):
            functions.tally(s, batch, shape, limits)
    assert batch.counts[:, STOPPED].tolist() == [0, 1]  # at one and a half times the target
    assert batch.counts[:, MINIBATCHES].tolist() == [2, 1]  # what comes after a stop is not counted
    assert batch.counts[:, SAMPLES].tolist() == [2 * shape.rows, shape.rows]
    assert batch.counts[:, PLACE].tolist() == [2, 2]
    np.testing.assert_allclose(batch.totals, batch.sums * [[2], [1]])
    for s in range(2):
        functions.begin(s, batch)
    for name in (MINIBATCHES, SAMPLES, PLACE, STOPPED, FAULT):
        assert not batch.counts[:, name].any()
    assert not batch.totals.any()
    functions.tally(0, batch, shape, FREE)
    assert batch.counts[0, STOPPED] == 0  # a target of 0 is never reached


def test_estimates_of_each_agent():
    """Every copy's column by itself, with the discount of its own agent; beside it the sums of the critic's errors."""
    shape, generator = shape_of(copies=3, horizon=6), np.random.default_rng(0)
    batch = batch_of(shape, HEADS["categorical"], seeds=2)
    samples = batch.samples
    for name in ("reward", "value", "final_value"):
        samples[name][...] = generator.normal(0, 1, samples.shape)
    samples.ended[[2, 4], [0, 3]], samples.ended[1, 1] = TRUNCATED, TERMINATED
    samples.final_value[samples.ended != TRUNCATED] = 0
    last, spread = generator.normal(0, 1, 6).astype(np.float32), np.full((6, 4), 7.0)
    discounts = np.array([(1.0, np.inf, 0.9, 0.8), (0.5, 0.3, 0.99, 1.0)], DISCOUNT).view(np.recarray)
    track = SimpleNamespace(samples=samples, last_value=last)
    for i in range(6):
        functions_of().estimate(i, track, discounts, spread, shape)
    for i in range(6):
        scale, limit, gamma, decay = (float(number) for number in discounts[i // 3])
        advantage, following = 0.0, float(last[i])
        for t in range(5, -1, -1):
            sample = samples[t, i]
            if sample.ended != GOES_ON:
                advantage, following = 0.0, float(sample.final_value)
            reward = min(max(float(sample.reward) * scale, -limit), limit)
            advantage = reward + gamma * following - float(sample.value) + gamma * decay * advantage
            following = float(sample.value)
            assert sample.advantage == pytest.approx(advantage, abs=1e-5)
            assert sample.target == pytest.approx(advantage + following, abs=1e-5)
        column = samples[:6, i]
        sums = [(column[name].astype(float) ** power).sum() for name in ("target", "advantage") for power in (1, 2)]
        np.testing.assert_allclose(spread[i], sums, rtol=1e-6)
