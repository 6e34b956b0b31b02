"""The scalar functions of DQN against torch autograd and by hand, in plain Python."""

from itertools import product

import numpy as np
import pytest
import torch
from scalars import ROWS, call, fresh, metrics_of, numbers, stream, transitions

from velocirl.algorithms.online.dqn import DQN, act, choose_by_network, choose_by_target, loss_gradient, value_of
from velocirl.networks.heads import epsilon_greedy

COUNT = 5
HELD = {"rtol": 1e-8, "atol": 1e-10}


def cases(dueling, masked, huber=1.0, seed=0):
    """Transitions with errors on both sides of the loss's corners, masks of all kinds, infinite values after ends."""
    head, settings = epsilon_greedy(COUNT, masked, 0.1), numbers(dueling=float(dueling), huber=huber)
    generator, rows = transitions(DQN, head, seed)
    columns = COUNT + 1 if dueling else COUNT
    values, next_values, target_values = generator.normal(0, 0.7, (3, ROWS, columns))
    target_values[rows["discount"] == 0] = np.inf
    rows["action"] = generator.integers(0, COUNT, (ROWS, 1))
    if masked:
        rows["next_mask"] = generator.integers(0, 2, (ROWS, COUNT))
        rows["next_mask"][:10] = 0  # forbids nothing
    return head, settings, rows, values, next_values, target_values


def read(outputs, dueling):
    """The values of actions, by torch."""
    outputs = torch.as_tensor(outputs)
    if not dueling:
        return outputs
    return outputs[:, COUNT:] + outputs[:, :COUNT] - outputs[:, :COUNT].mean(1, keepdim=True)


def targets(rows, next_values, target_values, dueling, double, masked):
    """What each value should have been, by torch."""
    own, other = read(next_values, dueling), read(np.nan_to_num(target_values, posinf=0.0), dueling)
    legal = torch.tensor(rows["next_mask"] != 0) if masked else torch.ones(ROWS, COUNT, dtype=torch.bool)
    legal = legal | ~legal.any(1, keepdim=True)
    chooser = torch.where(legal, own if double else other, torch.tensor(-torch.inf, dtype=torch.float64))
    following = other.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
    return torch.tensor(rows["reward"]) + torch.tensor(rows["discount"]) * following


def loss_by_torch(estimates, goals, rows, huber):
    if huber:
        losses = torch.nn.functional.huber_loss(estimates, goals, reduction="none", delta=huber)
    else:
        losses = 0.5 * (estimates - goals) ** 2
    return losses * torch.tensor(rows["weight"])


@pytest.mark.parametrize("huber", [0.0, 1.0, 0.3])
@pytest.mark.parametrize(("double", "dueling", "masked"), list(product((False, True), repeat=3)))
def test_gradient_and_metrics(double, dueling, masked, huber):
    head, settings, rows, values, next_values, target_values = cases(dueling, masked, huber)
    if double:
        call(choose_by_network, head=head, next_values=next_values, row=rows)
    else:
        call(choose_by_target, head=head, target_values=target_values, row=rows)
    gradient, metrics = fresh(values), metrics_of(DQN)
    call(
        loss_gradient, head=head, values=values, target_values=target_values, row=rows, settings=settings,
        gradient=gradient, metrics=metrics,
    )  # fmt: skip
    output = torch.tensor(values, requires_grad=True)
    estimates = read(output, dueling).gather(1, torch.tensor(rows["action"].astype(int)))[:, 0]
    goals = targets(rows, next_values, target_values, dueling, double, masked)
    losses = loss_by_torch(estimates, goals, rows, huber)
    losses.sum().backward()
    errors = (estimates - goals).detach().numpy()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(rows["error"], errors, **HELD)
    np.testing.assert_allclose(metrics["loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(metrics["action_value"], estimates.detach(), **HELD)
    np.testing.assert_allclose(metrics["td_error"], np.abs(errors), **HELD)
    if huber:
        assert 0.05 < np.mean(metrics["td_error"] > huber) < 0.95


def one_target(reward, discount, next_values, target_values, double):
    head, settings, rows, *_ = cases(dueling=False, masked=False)
    row, values = rows[0], np.zeros(COUNT)
    row.reward, row.discount = reward, discount
    following, target_values = (np.array(one + [-9.0] * (COUNT - 3), float) for one in (next_values, target_values))
    if double:
        choose_by_network(head, following, row)
    else:
        choose_by_target(head, target_values, row)
    loss_gradient(head, values, target_values, row, settings, np.zeros(COUNT), metrics_of(DQN, 1)[0])
    return -row.error


def test_target_by_hand():
    assert one_target(1, 0.5, [0, 5, 0], [10, 4, 6], double=True) == 1 + 0.5 * 4
    assert one_target(1, 0.5, [0, 5, 0], [10, 4, 6], double=False) == 1 + 0.5 * 10


@pytest.mark.parametrize("double", [False, True])
def test_nothing_follows_a_terminal_state(double):
    """Not even what is infinite there, or no number."""
    assert one_target(1, 0, [0, 5, 0], [np.inf, np.inf, 6], double) == 1
    assert one_target(1, 0, [0, 5, np.nan], [np.nan, np.inf, 6], double) == 1


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_infinite_error_is_not_hidden_by_a_straight_line():
    head, settings, rows, values, _, target_values = cases(dueling=False, masked=False)
    rows["discount"], gradient = 1.0, fresh(values)
    target_values[:] = np.inf
    loss_gradient(head, values[0], target_values[0], rows[0], settings, gradient[0], metrics_of(DQN, 1)[0])
    assert np.isnan(gradient[0, rows["action"][0, 0]])


def test_dueling_by_hand():
    """V + A - mean of A; without dueling the columns are the values."""
    head, output = epsilon_greedy(3, False, 0.0), np.array([1.0, 2.0, 6.0, 10.0])
    assert [value_of(head, output, action, numbers(dueling=1.0)) for action in range(3)] == [8, 9, 13]
    assert [value_of(head, output, action, numbers(dueling=0.0)) for action in range(3)] == [1, 2, 6]


def actions(head, output, mask, exploration, count):
    row, rng, taken = cases(False, False)[2][0], stream(), []
    for _ in range(count):
        act(head, output, row, mask, exploration, rng)
        taken.append(int(row.action[0]))
    return taken


def test_what_is_illegal_is_never_the_best_nor_drawn():
    head, mask = epsilon_greedy(4, True, 0.25), np.array([0, 1, 1, 0], np.int8)
    assert set(actions(head, np.array([9.0, 1, 2, 9]), mask, 0.0, 5)) == {2}
    assert set(actions(head, np.array([9.0, -3, -2, 9]), mask, 0.0, 5)) == {2}
    drawn = actions(head, np.array([9.0, 1, 2, 9]), mask, 1.0, 400)
    assert set(drawn) == {1, 2}
    assert 150 < drawn.count(1) < 250
    assert set(actions(head, np.zeros(4), np.zeros(4, np.int8), 1.0, 200)) == {0, 1, 2, 3}


def test_explores_as_often_as_it_is_told():
    """Of three actions, one is the best: it is taken with a probability of 3/5 + 2/5 * 1/3."""
    head, mask = epsilon_greedy(3, False, 0.0), np.ones(1, np.int8)
    taken = actions(head, np.array([0.0, 3, 1]), mask, 0.4, 3000)
    assert taken.count(1) / 3000 == pytest.approx(11 / 15, abs=0.03)


def test_a_quarter_of_the_actions_is_random_outside_of_training():
    """Of three actions, one is the best: it is taken with a probability of 3/4 + 1/4 * 1/3."""
    head, rng, action, taken = epsilon_greedy(3, False, 0.25), stream(), np.zeros(1, np.int32), []
    output, mask = np.array([0, 3, 1], np.float32), np.ones(1, np.int8)
    for _ in range(3000):
        head.sample(output, mask, rng, action)
        taken.append(int(action[0]))
    assert taken.count(1) / 3000 == pytest.approx(5 / 6, abs=0.03)
    head.mode(output, mask, action)
    assert action[0] == 1
