"""Target and gradient of DQN's loss for one transition against torch autograd, in plain Python and compiled."""

from itertools import product

import numpy as np
import pytest
import torch
from velocirl.algorithms.online.dqn_loss import (
    ACTION_VALUE,
    ERROR,
    LOSS,
    LossSettings,
    action_values,
    dqn_loss,
    dqn_target,
    epsilon_greedy_head,
)  # fmt: skip

from velocirl.engine import random
from velocirl.engine.compiling import compile_loop, learning_translator

ROWS, COUNT, METRICS = 300, 5, 3
TRANSITION = np.dtype(
    [("action", np.int32, (1,)), ("reward", np.float32), ("discount", np.float32), ("mask", np.int8, (COUNT,))],
    align=True,
)


def rows_of(dueling, seed=0):
    """Transitions with errors on both sides of the Huber loss's corners, masks of all kinds, and ends of episodes."""
    generator = np.random.default_rng(seed)
    columns = COUNT + 1 if dueling else COUNT
    output, following, frozen = generator.normal(0, 2, (3, ROWS, columns)).astype(np.float32)
    samples = np.zeros(ROWS, TRANSITION)
    samples["action"] = generator.integers(0, COUNT, (ROWS, 1))
    samples["reward"] = generator.normal(0, 1, ROWS)
    samples["discount"] = generator.choice([0.0, 0.9, 0.9**3], ROWS)
    samples["mask"] = generator.integers(0, 2, (ROWS, COUNT))
    samples["mask"][:10] = 0  # forbids nothing
    return output, following, frozen, samples


def values_by_torch(rows, dueling):
    rows = torch.as_tensor(rows)
    if not dueling:
        return rows
    return rows[:, COUNT:] + rows[:, :COUNT] - rows[:, :COUNT].mean(1, keepdim=True)


def target_by_torch(following, frozen, samples, dueling, double, masked):
    own, other = (values_by_torch(rows.astype(np.float64), dueling) for rows in (following, frozen))
    legal = torch.tensor(samples["mask"] != 0)
    legal = legal | ~legal.any(1, keepdim=True) if masked else torch.ones_like(legal)
    chooser = torch.where(legal, own if double else other, torch.tensor(-torch.inf, dtype=torch.float64))
    chosen = chooser.argmax(1, keepdim=True)
    kept = torch.tensor(samples["discount"].astype(np.float64)) * other.gather(1, chosen)[:, 0]
    return torch.tensor(samples["reward"].astype(np.float64)) + kept


def run(loop, arguments, compiled):
    if compiled:
        loop = compile_loop(loop, arguments, learning_translator("loss"), before=lambda: None)
    else:
        arguments = tuple(
            one.view(np.recarray) if getattr(one, "dtype", None) == TRANSITION else one for one in arguments
        )
    loop(*arguments)


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize(("double", "dueling", "masked"), list(product((False, True), repeat=3)))
def test_target(double, dueling, masked, compiled):
    _, following, frozen, samples = rows_of(dueling)
    target = dqn_target(action_values(COUNT, masked, dueling), double)

    def loop(following, frozen, samples, targets):
        for i in range(len(samples)):
            one = samples[i]
            targets[i] = target(following[i], frozen[i], one.reward, one.discount, one.mask)

    targets = np.zeros(ROWS, np.float32)
    run(loop, (following, frozen, samples, targets), compiled)
    expected = target_by_torch(following, frozen, samples, dueling, double, masked).numpy()
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize(("dueling", "huber"), list(product((False, True), (0.0, 1.0, 0.3))))
def test_gradient_and_metrics(dueling, huber, compiled):
    output, _, _, samples = rows_of(dueling)
    loss_gradient = dqn_loss(action_values(COUNT, False, dueling))

    def loop(output, samples, targets, weights, settings, gradient, metrics, errors):
        for i in range(len(samples)):
            errors[i] = loss_gradient(
                output[i], samples[i].action, targets[i], weights[i], settings, gradient[i], metrics[i]
            )

    generator = np.random.default_rng(1)
    weights = generator.uniform(0.2, 1, ROWS).astype(np.float32)
    double = torch.tensor(output.astype(np.float64), requires_grad=True)
    estimates = values_by_torch(double, dueling).gather(1, torch.tensor(samples["action"].astype(np.int64)))[:, 0]
    targets = (estimates.detach().numpy() + generator.normal(0, 1.5, ROWS)).astype(np.float32)
    gradient, metrics = np.full(output.shape, 7, np.float32), np.full((ROWS, METRICS), 7, np.float32)
    errors = np.zeros(ROWS, np.float32)
    arguments = (output, samples, targets, weights, LossSettings(np.float32(huber)), gradient, metrics, errors)
    run(loop, arguments, compiled)

    goal = torch.tensor(targets.astype(np.float64))
    if huber:
        losses = torch.nn.functional.huber_loss(estimates, goal, reduction="none", delta=float(np.float32(huber)))
    else:
        losses = 0.5 * (estimates - goal) ** 2
    losses = losses * torch.tensor(weights.astype(np.float64))
    losses.sum().backward()
    assert double.grad is not None
    np.testing.assert_allclose(gradient, double.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics[:, LOSS], losses.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics[:, ACTION_VALUE], estimates.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(metrics[:, ERROR], (estimates - goal).abs().detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(errors, (estimates - goal).detach().numpy(), rtol=1e-4, atol=1e-5)
    if huber:
        assert 0.1 < np.mean(metrics[:, ERROR] > huber) < 0.9


def one_target(reward, discount, following, frozen, double):
    rows = np.array(following, np.float32), np.array(frozen, np.float32)
    return dqn_target(action_values(3, False, False), double)(*rows, reward, discount, np.ones(1, np.int8))


def test_target_by_hand():
    assert one_target(1, 0.5, [0, 5, 0], [10, 4, 6], double=True) == 1 + 0.5 * 4
    assert one_target(1, 0.5, [0, 5, 0], [10, 4, 6], double=False) == 1 + 0.5 * 10


def test_nothing_follows_a_terminal_state():
    """Not even what is infinite there."""
    assert one_target(1, 0, [0, 5, 0], [np.inf, np.inf, 6], double=True) == 1


def test_an_infinite_error_is_not_hidden_by_a_straight_line():
    gradient, metrics = np.zeros(3, np.float32), np.zeros(METRICS, np.float32)
    arguments = np.zeros(3, np.float32), np.zeros(1, np.int32), np.float32(np.inf), np.float32(1)
    with np.errstate(invalid="ignore"):
        dqn_loss(action_values(3, False, False))(*arguments, LossSettings(np.float32(1)), gradient, metrics)
    assert np.isnan(gradient[0])


def test_what_is_illegal_is_never_the_best_nor_drawn():
    values = action_values(4, True, False)
    output, mask = np.array([9, 1, 2, 9], np.float32), np.array([0, 1, 1, 0], np.int8)
    assert values.best(output, mask) == 2
    assert values.best(np.array([9, -3, -2, 9], np.float32), mask) == 2
    rng = random.streams(0, 1)[0]

    def draw(mask):
        action = np.full(1, 9, np.int32)
        values.draw(mask, rng, action)
        return int(action[0])

    drawn = [draw(mask) for _ in range(400)]
    assert set(drawn) == {1, 2}
    assert 150 < drawn.count(1) < 250
    assert {draw(np.zeros(4, np.int8)) for _ in range(200)} == {0, 1, 2, 3}


def test_a_quarter_of_the_actions_is_random():
    """Of three actions, one is the best: it is taken with a probability of 3/4 + 1/4 * 1/3."""
    head = epsilon_greedy_head(3, False, action_values(3, False, False), 0.25)
    output, mask, rng = np.array([0, 3, 1], np.float32), np.ones(1, np.int8), random.streams(0, 1)[0]
    action, taken = np.zeros(1, np.int32), []
    for _ in range(3000):
        head.sample(output, mask, rng, action)
        taken.append(int(action[0]))
    assert taken.count(1) / 3000 == pytest.approx(5 / 6, abs=0.03)
    head.mode(output, mask, action)
    assert action[0] == 1
