"""The scalar functions of PPO against torch autograd and by hand, in plain Python."""

from itertools import product
from math import inf, log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scalars import call, fresh, held, metrics_of, numbers, stepped, stream

from velocirl.algorithms.online.ppo import (
    PPO,
    A2CConfig,
    PPOConfig,
    act,
    add_advantage,
    compare_policies,
    find_scale,
    loss_gradient,
    moved_too_far,
    state_value,
)  # fmt: skip
from velocirl.buffers.returns import vtrace
from velocirl.networks.heads import categorical, gaussian, multi_discrete

HEADS = {
    "categorical": (categorical(3), (3,)),
    "masked": (categorical(6, masked=True), (6,)),
    "multi-discrete": (multi_discrete((2, 4)), (2, 4)),
    "multi-discrete masked": (multi_discrete((2, 4), masked=True), (2, 4)),
    "gaussian": (gaussian(2), ()),
}
ROWS = 150
HELD = {"rtol": 1e-8, "atol": 1e-10}
COMBINATIONS = list(product((0.0, 0.2), (0.0, 0.3), (0.0, 1.5), (0.0, 0.05), (0.0, 1.0)))


def distribution(name, output, rows):
    """Log-probability and entropy of each row, by torch."""
    head, counts = HEADS[name]
    actions, masks = torch.tensor(rows["action"].astype(float if not counts else int)), torch.tensor(rows["mask"])
    if not counts:
        deviations = torch.exp(held(output[:, 2:4]))
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


def losses(name, output, rows, settings):
    """Every term of the loss for each row, by torch."""
    of = {field: torch.tensor(rows[field]) for field in ("log_probability", "value", "target", "advantage")}
    advantages = of["advantage"]
    if settings.normalise_advantages:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_probability, entropy = distribution(name, output, rows)
    ratio = torch.exp(log_probability - of["log_probability"])
    kept = ratio if settings.clip == 0 else torch.clamp(ratio, 1 - settings.clip, 1 + settings.clip)
    objective = torch.minimum(ratio * advantages, kept * advantages)
    if settings.dual_clip > 0:
        given_up = torch.maximum(objective, settings.dual_clip * advantages)
        objective = torch.where(advantages < 0, given_up, objective)
    estimate = output[:, -1]
    error = (estimate - of["target"]) ** 2
    if settings.value_clip > 0:
        near = of["value"] + torch.clamp(estimate - of["value"], -settings.value_clip, settings.value_clip)
        error = torch.maximum(error, (near - of["target"]) ** 2)
    loss = -objective + settings.value_coefficient * error / 2 - settings.entropy_coefficient * entropy
    divergence = (ratio - 1) - (log_probability - of["log_probability"])
    terms = {"loss": loss, "policy_loss": -objective, "value_loss": error / 2, "entropy_loss": -entropy}
    return {**terms, "approx_kl": divergence}, ratio


def rows_of(name, seed=0):
    """Samples whose ratios lie on both sides of every clip, and advantages of both signs."""
    head, counts = HEADS[name]
    generator, rows = np.random.default_rng(seed), stepped(PPO, head, ROWS)
    output = generator.normal(0, 1, (ROWS, head.outputs + 1))
    if counts:
        first = 0
        for part, count in enumerate(counts):
            rows["action"][:, part] = generator.integers(0, count, ROWS)
            if head.masked:
                rows["mask"][:, first : first + count] = generator.integers(0, 2, (ROWS, count))
                rows["mask"][np.arange(ROWS), first + rows["action"][:, part]] = 1
            first += count
    else:
        rows["action"] = output[:, :2] + np.exp(output[:, 2:4]) * generator.normal(size=(ROWS, 2))
        output[::20, 3], output[1::20, 3] = 2.5, -5.5  # beyond the bounds of a deviation
    now, _ = distribution(name, torch.tensor(output), rows)
    rows["log_probability"] = now.numpy() + generator.uniform(-1.5, 0.7, ROWS)
    rows["value"] = output[:, -1] + generator.normal(0, 0.5, ROWS)
    rows["target"] = output[:, -1] + generator.normal(0, 1, ROWS)
    rows["advantage"] = generator.normal(0.5, 2, ROWS)
    return output, rows


def settings_of(
    clip=0.2, value_clip=0.0, dual_clip=0.0, entropy_coefficient=0.0, normalise_advantages=0.0, value_coefficient=0.5,
    weight_limit=inf,
):  # fmt: skip
    return numbers(**locals())


def means_of(rows):
    """What the whole batch meets for: the mean of advantages, and one over their deviation."""
    metrics = metrics_of(PPO, len(rows))
    call(add_advantage, row=rows, metrics=metrics)
    told = {name: metrics[name].mean() for name in ("advantage", "squared_advantage")}
    means = numbers(**told, advantage_scale=0.0, rows=len(rows))
    find_scale(means)
    return means


@pytest.mark.parametrize("name", HEADS)
def test_gradient_and_metrics(name):
    """All combinations of what can be switched on; each also has samples inside and outside of every clip."""
    for number, combination in enumerate(COMBINATIONS if name == "categorical" else COMBINATIONS[::3]):
        output, rows = rows_of(name, number)
        settings = settings_of(*combination, value_coefficient=0.7)
        gradient, metrics = fresh(output), metrics_of(PPO, ROWS)
        call(
            loss_gradient, head=HEADS[name][0], policy=output, row=rows, means=means_of(rows), settings=settings,
            gradient=gradient, metrics=metrics,
        )  # fmt: skip
        double = torch.tensor(output, requires_grad=True)
        terms, ratio = losses(name, double, rows, settings)
        terms["loss"].sum().backward()
        np.testing.assert_allclose(gradient, double.grad, **HELD)
        for term, expected in terms.items():
            np.testing.assert_allclose(metrics[term], expected.detach(), **HELD)
        outside = np.abs(ratio.detach().numpy() - 1.0) > settings.clip
        np.testing.assert_array_equal(metrics["clip_fraction"], outside)
        assert outside.mean() > 0.1
        assert settings.clip == 0 or outside.mean() < 0.95


def test_advantages_have_the_deviation_of_a_sample():
    _, rows = rows_of("categorical")
    means = means_of(rows)
    assert means.advantage == pytest.approx(rows["advantage"].mean())
    assert means.advantage_scale == pytest.approx(1 / (rows["advantage"].std(ddof=1) + 1e-8))
    rows["advantage"] = 3.0
    assert 1e6 < means_of(rows).advantage_scale <= 1e8  # no division by nothing


def test_a_single_advantage_is_not_normalised():
    alone = rows_of("categorical")[1][:1]
    alone["log_probability"] = log(1 / 3)
    assert means_of(alone).advantage_scale == 0.0
    found = []
    for normalise in (0.0, 1.0):
        gradient, settings = np.zeros(4), settings_of(normalise_advantages=normalise)
        loss_gradient(HEADS["categorical"][0], np.zeros(4), alone[0], means_of(alone), settings, gradient,
                      metrics_of(PPO, 1)[0])  # fmt: skip
        found.append(gradient.tolist())
    assert found[0] == found[1]
    assert any(found[0][:3])


@pytest.mark.parametrize("name", HEADS)
def test_what_is_drawn_is_kept_with_its_probability_and_value(name):
    output, rows = rows_of(name)
    head = HEADS[name][0]
    call(act, head=head, policy=output, row=rows, mask=rows["mask"].copy(), rng=stream())
    expected, _ = distribution(name, torch.tensor(output), rows)
    np.testing.assert_allclose(rows["log_probability"], expected, **HELD)
    np.testing.assert_array_equal(rows["value"], output[:, -1])
    if head.masked:
        assert (rows["mask"][np.arange(ROWS), rows["action"][:, 0]] != 0).all()
    rows["value"] = 7
    call(state_value, head=head, policy=output, row=rows)
    np.testing.assert_array_equal(rows["value"], output[:, -1])


@pytest.mark.parametrize("name", HEADS)
def test_policies_are_compared(name):
    """What V-trace asks for: the ratio of probabilities, and the value by the critic of now."""
    output, rows = rows_of(name)
    call(compare_policies, head=HEADS[name][0], policy=output, row=rows, policy_gradient=fresh(output))
    now, _ = distribution(name, torch.tensor(output), rows)
    np.testing.assert_allclose(rows["ratio"], np.exp(now.numpy() - rows["log_probability"]), **HELD)
    np.testing.assert_array_equal(rows["current_value"], output[:, -1])


def test_an_update_is_stopped_beyond_one_and_a_half_times_its_limit():
    settings = numbers(target_kl=0.02)
    assert not moved_too_far(numbers(approx_kl=0.0299), settings)
    assert moved_too_far(numbers(approx_kl=0.0301), settings)


def one_sample(advantage, ratio, settings):
    """The gradient of the chosen logit for a single sample with this ratio."""
    rows, gradient, metrics = stepped(PPO, HEADS["categorical"][0], 1), np.zeros(4), metrics_of(PPO, 1)
    rows["log_probability"], rows["advantage"] = log(1 / 3) - log(ratio), advantage
    loss_gradient(HEADS["categorical"][0], np.zeros(4), rows[0], numbers(rows=1.0), settings, gradient, metrics[0])
    return float(gradient[0]), float(metrics["policy_loss"][0])


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
    assert gradient == pytest.approx(weight * (1 - 1 / 3), abs=1e-9)
    assert policy_loss == pytest.approx(loss)


@pytest.mark.parametrize(("advantage", "ratio", "weight"), [(2.0, 4.0, -3.0), (-2.0, 4.0, 3.0), (2.0, 0.5, -1.0)])
def test_an_unclipped_ratio_weighs_no_more_than_its_limit(advantage, ratio, weight):
    gradient, policy_loss = one_sample(advantage, ratio, settings_of(clip=0.0, weight_limit=1.5))
    assert gradient == pytest.approx(weight * (1 - 1 / 3), abs=1e-9)
    assert policy_loss == pytest.approx(weight)


def bandit_gradient(logits, behaviour, rewards, estimate, rho_limit):
    """The expected gradient of a bandit of one pull, whose actions another policy draws; by our own functions."""
    actions, total = len(rewards), np.zeros(len(rewards))
    policy = np.exp(logits) / np.exp(logits).sum()
    weight_limit = PPO.numbers(SimpleNamespace(config=A2CConfig(estimator="vtrace", rho_limit=rho_limit)))
    for action in range(actions):
        rows = stepped(PPO, categorical(actions), 1)
        rows["action"], rows["log_probability"] = action, log(behaviour[action])
        output = np.append(logits, estimate)
        call(
            compare_policies, head=categorical(actions), policy=output[None], row=rows, policy_gradient=np.zeros((1, 4))
        )
        column = {name: np.zeros(2) for name in ("advantage", "target", "final_value", "value")}
        vtrace(
            np.array([rewards[action], 0.0]), column["value"], np.full(2, estimate), column["final_value"],
            np.array([1, 0]), np.full(2, rows["ratio"][0]), column["advantage"], column["target"],
            numbers(gamma=0.9, gae_lambda=1.0, rho_limit=rho_limit, c_limit=1.0),
        )  # fmt: skip
        rows["advantage"], gradient = column["advantage"][0], np.zeros(actions + 1)
        settings = settings_of(clip=0.0, **weight_limit)
        loss_gradient(
            categorical(actions), output, rows[0], numbers(rows=1.0), settings, gradient, metrics_of(PPO, 1)[0]
        )
        assert rows["ratio"][0] == pytest.approx(policy[action] / behaviour[action])
        total -= behaviour[action] * gradient[:actions]
    return total


def test_the_gradient_of_an_exact_bandit_is_that_of_impala():
    """With a limit that holds no ratio it is the truth, d J / d logit_k = pi_k (r_k - J); else IMPALA's, rho once."""
    logits, behaviour = np.array([0.5, 0.0, -0.5]), np.array([0.2, 0.3, 0.5])
    rewards, estimate = np.array([1.0, 0.2, 0.0]), 0.4
    policy = np.exp(logits) / np.exp(logits).sum()
    truth = policy * (rewards - policy @ rewards)
    np.testing.assert_allclose(bandit_gradient(logits, behaviour, rewards, estimate, 100.0), truth, atol=1e-9)
    weights = behaviour * np.minimum(policy / behaviour, 1.0) * (rewards - estimate)
    impala = weights - policy * weights.sum()
    assert np.abs(impala - truth).max() > 0.05
    np.testing.assert_allclose(bandit_gradient(logits, behaviour, rewards, estimate, 1.0), impala, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "config", "limit"),
    [
        (A2CConfig, {}, inf),
        (A2CConfig, {"estimator": "vtrace", "rho_limit": 1.25}, 1.25),
        (PPOConfig, {"estimator": "vtrace"}, inf),  # the clip bounds it
    ],
)
def test_which_ratios_are_limited(kind, config, limit):
    assert PPO.numbers(SimpleNamespace(config=kind(**config))) == {"weight_limit": limit}


def test_dual_clip_by_hand():
    assert one_sample(-2.0, 4.0, settings_of(dual_clip=3.0)) == pytest.approx((0.0, 6.0))
    assert one_sample(-2.0, 2.0, settings_of(dual_clip=3.0)) == pytest.approx((4.0 * 2 / 3, 4.0))
    assert one_sample(2.0, 0.5, settings_of(dual_clip=3.0)) == pytest.approx((-1.0 * 2 / 3, -1.0))


def test_more_entropy_is_better():
    """The entropy's weight pulls towards the uniform distribution: up where a logit is low, down where it is high."""
    head, gradient, output = HEADS["categorical"][0], np.zeros(4), np.array([2.0, 0, 0, 0])
    loss_gradient(head, output, stepped(PPO, head, 1)[0], numbers(rows=1.0), settings_of(entropy_coefficient=1.0),
                  gradient, metrics_of(PPO, 1)[0])  # fmt: skip
    assert gradient[0] > 0.1  # descent lowers the high one
    assert gradient[1] < -0.05
    assert gradient[:3].sum() == pytest.approx(0, abs=1e-9)
