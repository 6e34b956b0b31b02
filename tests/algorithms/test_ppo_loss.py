"""The gradient of PPO's loss for one sample against torch autograd, in plain Python and compiled."""

from itertools import product

import numpy as np
import pytest
import torch
from velocirl.algorithms.online.ppo_loss import (
    APPROX_KL,
    CLIP_FRACTION,
    ENTROPY,
    LOSS,
    POLICY_LOSS,
    VALUE_LOSS,
    LossSettings,
    ppo_loss,
)  # fmt: skip
from velocirl.buffers.rollout import sample_type

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.networks.heads import categorical, gaussian, multi_discrete

HEADS = {
    "categorical": (categorical(3), (3,)),
    "masked": (categorical(6, masked=True), (6,)),
    "multi-discrete": (multi_discrete((2, 4)), (2, 4)),
    "multi-discrete masked": (multi_discrete((2, 4), masked=True), (2, 4)),
    "gaussian": (gaussian(2), ()),
}
ROWS = 400
METRICS = 6


def distribution(name, output, masks, actions):
    """Log-probability and entropy of each row, by torch."""
    head, counts = HEADS[name]
    if not counts:
        deviations = torch.exp(output[:, 2:4].clamp(-5, 2))
        normal = torch.distributions.Normal(output[:, :2], deviations)
        return normal.log_prob(actions).sum(1), normal.entropy().sum(1)
    log_probability, entropy, first = 0, 0, 0
    for part, count in enumerate(counts):
        logits = output[:, first : first + count]
        if head.masked:
            logits = torch.where(masks[:, first : first + count] != 0, logits, torch.tensor(-1e30, dtype=torch.float64))
        choice = torch.distributions.Categorical(logits=logits, validate_args=False)
        log_probability = log_probability + choice.log_prob(actions[:, part])
        entropy = entropy - (choice.probs * choice.logits).sum(1)
        first += count
    return log_probability, entropy


def losses(name, output, samples, advantages, settings):
    """Every term of the loss for each row, by torch in double precision."""
    of = {field: torch.tensor(samples[field].astype(np.float64)) for field in ("log_probability", "value", "target")}
    actions = torch.tensor(samples["action"].astype(np.float64 if name == "gaussian" else np.int64))
    log_probability, entropy = distribution(name, output, torch.tensor(samples["mask"]), actions)
    ratio = torch.exp(log_probability - of["log_probability"])
    kept = ratio if settings.clip == 0 else torch.clamp(ratio, 1 - settings.clip, 1 + settings.clip)
    objective = torch.minimum(ratio * advantages, kept * advantages)
    if settings.dual_clip > 0:
        given_up = torch.maximum(objective, settings.dual_clip * advantages)
        objective = torch.where(advantages < 0, given_up, objective)
    value = output[:, -1]
    error = (value - of["target"]) ** 2
    if settings.value_clip > 0:
        near = of["value"] + torch.clamp(value - of["value"], -settings.value_clip, settings.value_clip)
        error = torch.maximum(error, (near - of["target"]) ** 2)
    loss = -objective + settings.value_coefficient * error / 2 - settings.entropy_coefficient * entropy
    divergence = (ratio - 1) - (log_probability - of["log_probability"])
    return loss, -objective, error / 2, entropy, divergence, ratio


def rows_of(name, seed=0):
    """Samples whose ratios lie on both sides of every clip, and advantages of both signs."""
    head, counts = HEADS[name]
    generator = np.random.default_rng(seed)
    samples = np.zeros(ROWS, sample_type(1, head.action_size, head.action_dtype, head.outputs if head.masked else 0))
    output = generator.normal(0, 1, (ROWS, head.outputs + 1)).astype(np.float32)
    if counts:
        first = 0
        for part, count in enumerate(counts):
            samples["action"][:, part] = generator.integers(0, count, ROWS)
            if head.masked:
                samples["mask"][:, first : first + count] = generator.integers(0, 2, (ROWS, count))
                samples["mask"][np.arange(ROWS), first + samples["action"][:, part]] = 1
            first += count
    else:
        samples["action"] = output[:, :2] + np.exp(output[:, 2:4]) * generator.normal(size=(ROWS, 2))
        output[::20, 3] = 2.5  # beyond the bound of a deviation
    actions = torch.tensor(samples["action"].astype(np.float64 if name == "gaussian" else np.int64))
    now, _ = distribution(name, torch.tensor(output.astype(np.float64)), torch.tensor(samples["mask"]), actions)
    samples["log_probability"] = now.numpy() + generator.uniform(-1.5, 0.7, ROWS)
    samples["value"] = output[:, -1] + generator.normal(0, 0.5, ROWS)
    samples["target"] = output[:, -1] + generator.normal(0, 1, ROWS)
    advantages = generator.normal(0, 2, ROWS).astype(np.float32)
    return output, samples, advantages


def loop_of(head):
    loss_gradient = ppo_loss(head)

    def loop(output, samples, advantages, settings, gradient, metrics):
        for i in range(len(samples)):
            loss_gradient(output[i], samples[i], advantages[i], settings, gradient[i], metrics[i])

    return loop


def settings_of(clip=0.2, value_clip=0.0, dual_clip=0.0, value_coefficient=0.5, entropy_coefficient=0.0):
    return LossSettings(*map(np.float32, (clip, value_clip, dual_clip, value_coefficient, entropy_coefficient)))


def run(name, output, samples, advantages, settings, compiled):
    gradient = np.full(output.shape, 7, np.float32)
    metrics = np.full((len(output), METRICS), 7, np.float32)
    loop = loop_of(HEADS[name][0])
    arguments = (output, samples if compiled else samples.view(np.recarray), advantages, settings, gradient, metrics)
    if compiled:
        loop = compile_loop(loop, arguments, learning_translator("loss"), before=lambda: None)
    loop(*arguments)
    return gradient, metrics


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize("name", HEADS)
def test_gradient_and_metrics(name, compiled):
    """All combinations of what can be switched on; each also has samples inside and outside of every clip."""
    combinations = list(product((0.0, 0.2), (0.0, 0.3), (0.0, 1.5), (0.0, 0.05)))
    for number, (clip, value_clip, dual_clip, entropy) in enumerate(combinations if compiled else combinations[::5]):
        output, samples, advantages = rows_of(name, number)
        settings = settings_of(clip, value_clip, dual_clip, 0.7, entropy)
        gradient, metrics = run(name, output, samples, advantages, settings, compiled)
        double = torch.tensor(output.astype(np.float64), requires_grad=True)
        loss, policy, value, entropies, divergence, ratio = losses(
            name, double, samples, torch.tensor(advantages.astype(np.float64)), settings
        )
        loss.sum().backward()
        expected = double.grad.numpy()
        scale = np.abs(expected).max(axis=1, keepdims=True)
        assert np.all(np.abs(gradient - expected) <= 2e-5 * np.maximum(scale, 0.1))
        for place, terms in ((LOSS, loss), (POLICY_LOSS, policy), (VALUE_LOSS, value), (ENTROPY, entropies),
                             (APPROX_KL, divergence)):  # fmt: skip
            np.testing.assert_allclose(metrics[:, place], terms.detach().numpy(), rtol=2e-5, atol=2e-5)
        outside = np.abs(ratio.detach().numpy() - 1.0) > settings.clip
        np.testing.assert_array_equal(metrics[:, CLIP_FRACTION], outside)
        assert outside.mean() > 0.1
        assert clip == 0 or outside.mean() < 0.9


def one_sample(advantage, ratio, settings):
    """The gradient of the chosen logit for a single sample with this ratio."""
    head = HEADS["categorical"][0]
    samples = np.zeros(1, sample_type(1, 1, "int32", 0)).view(np.recarray)
    samples["log_probability"] = np.log(1 / 3) - np.log(ratio)
    gradient, metrics = np.zeros(4, np.float32), np.zeros(METRICS, np.float32)
    ppo_loss(head)(np.zeros(4, np.float32), samples[0], advantage, settings, gradient, metrics)
    return float(gradient[0]), float(metrics[POLICY_LOSS])


@pytest.mark.parametrize(
    ("advantage", "ratio", "weight", "loss"),
    [
        (2.0, 1.0, -2.0, -2.0),
        (2.0, 1.5, 0.0, -2.4),  # already more probable than allowed: no further
        (2.0, 0.5, -1.0, -1.0),  # less probable, though good: back again, without a limit
        (-2.0, 0.5, 0.0, 1.6),  # already less probable than allowed
        (-2.0, 1.5, 3.0, 3.0),  # more probable, though bad
    ],
)
def test_clip_by_hand(advantage, ratio, weight, loss):
    gradient, policy_loss = one_sample(advantage, ratio, settings_of())
    assert gradient == pytest.approx(weight * (1 - 1 / 3), abs=1e-5)
    assert policy_loss == pytest.approx(loss, rel=1e-5)


def test_dual_clip_by_hand():
    assert one_sample(-2.0, 4.0, settings_of(dual_clip=3.0)) == pytest.approx((0.0, 6.0), rel=1e-5)
    assert one_sample(-2.0, 2.0, settings_of(dual_clip=3.0)) == pytest.approx((4.0 * 2 / 3, 4.0), rel=1e-5)
    assert one_sample(2.0, 0.5, settings_of(dual_clip=3.0)) == pytest.approx((-1.0 * 2 / 3, -1.0), rel=1e-5)


def test_more_entropy_is_better():
    """The entropy's weight pulls towards the uniform distribution: up where a logit is low, down where it is high."""
    head = HEADS["categorical"][0]
    samples = np.zeros(1, sample_type(1, 1, "int32", 0)).view(np.recarray)
    gradient, output = np.zeros(4, np.float32), np.array([2, 0, 0, 0], np.float32)
    ppo_loss(head)(
        output, samples[0], 0.0, settings_of(entropy_coefficient=1.0), gradient, np.zeros(METRICS, np.float32)
    )
    assert gradient[0] > 0.1  # descent lowers the high one
    assert gradient[1] < -0.05
    assert gradient[:3].sum() == pytest.approx(0, abs=1e-6)
