"""QR-DQN: its scalar functions against torch autograd and by hand, in plain Python; it learns and repeats itself."""

import numpy as np
import pytest
import torch
from scalars import ROWS, call, fresh, metrics_of, numbers, stream, transitions

import velocirl
from velocirl import QRDQN
from velocirl.algorithms.online.qr_dqn import act, choose_by_network, choose_by_target, loss_gradient
from velocirl.networks.heads import by_values, mean_of

COUNT, QUANTILES = 3, 4
HELD = {"rtol": 1e-8, "atol": 1e-10}
SMALL = {
    "num_envs": 4, "hidden": (16, 16), "seed": 1, "learning_starts": 16, "batch_size": 8, "train_every": 4,
    "target_every": 3, "buffer_size": 500, "quantiles": 5, "learning_rate_schedule": "constant", "threads": 1,
}  # fmt: skip


def head_of(masked, epsilon=0.1):
    return by_values(COUNT, masked, epsilon, QUANTILES)


def cases(masked, huber=1.0, seed=0):
    """Transitions with errors on both sides of the loss's corners, masks of all kinds, infinite values after ends."""
    head, settings = head_of(masked), numbers(quantiles=QUANTILES, huber=huber)
    generator, rows = transitions(QRDQN, head, seed)
    values, next_values, target_values = generator.normal(0, 0.7, (3, ROWS, COUNT * QUANTILES))
    target_values[rows["discount"] == 0] = np.inf
    rows["action"] = generator.integers(0, COUNT, (ROWS, 1))
    if masked:
        rows["next_mask"] = generator.integers(0, 2, (ROWS, COUNT))
        rows["next_mask"][:10] = 0  # forbids nothing
    return head, settings, rows, values, next_values, target_values


def quantiles_of(outputs, actions):
    """The quantiles of an action of each row, by torch."""
    rows = torch.as_tensor(outputs).view(ROWS, COUNT, QUANTILES)
    return rows[torch.arange(ROWS), torch.as_tensor(actions)]


def best_actions(outputs, rows, masked):
    """The legal action whose quantiles have the highest mean, by torch."""
    means = torch.as_tensor(outputs).view(ROWS, COUNT, QUANTILES).mean(2)
    legal = torch.tensor(rows["next_mask"] != 0) if masked else torch.ones(ROWS, COUNT, dtype=torch.bool)
    legal = legal | ~legal.any(1, keepdim=True)
    return torch.where(legal, means, torch.tensor(-torch.inf, dtype=torch.float64)).argmax(1)


def loss_by_torch(estimates, goals, huber):
    """Dabney et al., 2018, equation 10: the sum over quantiles of the mean over those of the target."""
    errors = goals[:, None, :] - estimates[:, :, None]
    shares = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
    if huber:
        sizes = torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=huber) / huber
    else:
        sizes = errors.abs()
    return ((shares[None, :, None] - (errors < 0).double()).abs() * sizes).mean(2).sum(1)


@pytest.mark.parametrize("huber", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_gradient_and_metrics(double, masked, huber):
    head, settings, rows, values, next_values, target_values = cases(masked, huber)
    if double:
        call(choose_by_network, head=head, next_values=next_values, row=rows)
    else:
        call(choose_by_target, head=head, target_values=target_values, row=rows)
    gradient, metrics = fresh(values), metrics_of(QRDQN)
    call(
        loss_gradient, head=head, values=values, target_values=target_values, row=rows, settings=settings,
        gradient=gradient, metrics=metrics,
    )  # fmt: skip
    goes_on, weight = rows["discount"] > 0, torch.tensor(rows["weight"])
    finite = np.where(np.isinf(target_values), 0.0, target_values)
    chosen = best_actions(next_values if double else finite, rows, masked)
    np.testing.assert_array_equal(rows["next_action"][goes_on], chosen[torch.tensor(goes_on)])
    output = torch.tensor(values, requires_grad=True)
    estimates = quantiles_of(output, rows["action"][:, 0].astype(int))
    reward, discount = (torch.tensor(rows[name])[:, None] for name in ("reward", "discount"))
    goals = reward + discount * quantiles_of(finite, chosen)
    losses = weight * loss_by_torch(estimates, goals, huber)
    losses.sum().backward()
    mean, errors = estimates.detach().mean(1), (goals.mean(1) - estimates.mean(1)).detach()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(rows["error"], errors, **HELD)
    np.testing.assert_allclose(metrics["td_error"], errors.abs(), **HELD)
    np.testing.assert_allclose(metrics["action_value"], mean, **HELD)
    np.testing.assert_allclose(metrics["spread"], (estimates[:, -1] - estimates[:, 0]).detach(), **HELD)
    assert np.mean(metrics["td_error"] > huber) > 0.05


def test_loss_by_hand():
    """One quantile is the median: half the error's size, and beyond the limit half a straight line."""
    head = by_values(1, False, 0.0, 1)
    _, rows = transitions(QRDQN, head)
    row, settings = rows[0], numbers(quantiles=1, huber=1.0)
    row.weight, row.discount, row.next_action = 1.0, 0.5, 0
    for reward, loss, slope in ((0.0, 0.25, -0.5), (3.0, 1.75, -0.5), (-2.5, 0.5, 0.5), (-1.5, 0.0625, 0.25)):
        row.reward, gradient, metrics = reward, np.zeros(1), metrics_of(QRDQN, 1)
        loss_gradient(head, np.zeros(1), np.array([2.0]), row, settings, gradient, metrics[0])
        assert (metrics["loss"][0], gradient[0]) == pytest.approx((loss, slope))


def test_low_quantiles_are_pulled_down_more_than_up():
    """Of errors of the same size, tau of a quantile says how much one above it counts, and 1 - tau one below."""
    head, settings, rows, *_ = cases(masked=False, huber=0.0)
    row, pulls = rows[0], {}
    row.weight, row.discount, row.action[0] = 1.0, 0.0, 0
    for reward in (1.0, -1.0):
        row.reward, gradient = reward, np.zeros(COUNT * QUANTILES)
        loss_gradient(head, np.zeros(COUNT * QUANTILES), gradient, row, settings, gradient, metrics_of(QRDQN, 1)[0])
        pulls[reward] = gradient[:QUANTILES].copy()
    np.testing.assert_allclose(pulls[1.0], [-1 / 8, -3 / 8, -5 / 8, -7 / 8])
    np.testing.assert_allclose(pulls[-1.0], [7 / 8, 5 / 8, 3 / 8, 1 / 8])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_infinite_error_is_not_hidden_by_a_straight_line_and_nothing_follows_an_end():
    head, settings, rows, values, _, target_values = cases(masked=False)
    target_values[:], row, gradient = np.inf, rows[0], fresh(values)[0]
    row.discount, row.reward, row.next_action = 0.0, 1.0, 0
    loss_gradient(head, values[0], target_values[0], row, settings, gradient, metrics_of(QRDQN, 1)[0])
    assert row.error == pytest.approx(1.0 - mean_of(values[0], row.action[0], QUANTILES))
    assert np.isfinite(gradient).all()
    row.discount = 0.9
    loss_gradient(head, values[0], target_values[0], row, settings, gradient, metrics_of(QRDQN, 1)[0])
    assert np.isnan(gradient[row.action[0] * QUANTILES])


def actions(head, output, mask, exploration, count):
    row, rng, taken = cases(False)[2][0], stream(), []
    for _ in range(count):
        act(head, output, row, mask, exploration, rng)
        taken.append(int(row.action[0]))
    return taken


def test_it_acts_by_the_means_of_quantiles():
    """The second action has the highest mean, the first the highest quantile, the third the highest of the lowest."""
    output = np.array([-9.0, -9, 0, 9, 0, 1, 2, 3, 1, 1, 1.2, 1.3])
    free, mask = np.ones(1, np.int8), np.array([1, 0, 1], np.int8)
    assert set(actions(head_of(False), output, free, 0.0, 5)) == {1}
    assert set(actions(head_of(True), output, mask, 0.0, 5)) == {2}
    assert set(actions(head_of(True), output, mask, 1.0, 200)) == {0, 2}
    taken = actions(head_of(False), output, free, 0.4, 3000)
    assert taken.count(1) / 3000 == pytest.approx(11 / 15, abs=0.03)
    chosen = np.zeros(1, np.int32)
    head_of(False, 0.25).mode(output, free, chosen)
    assert chosen[0] == 1


def shown(agent):
    return {name: value for name, value in agent.metrics.items() if name.startswith(("train/", "rollout/"))}


@pytest.mark.parametrize("double", [False, True])
def test_compiled_code_does_what_plain_python_does(double):
    ours, plain = (QRDQN("CartPole-v1", **SMALL, double=double, device=one).learn(64) for one in ("cpu", "python"))
    assert np.abs(ours.parameters - plain.parameters).max() < 1e-5
    assert shown(ours) == pytest.approx(shown(plain), rel=1e-3, abs=1e-5)
    assert np.abs(ours.parameters - QRDQN("CartPole-v1", **SMALL).parameters).max() > 1e-3


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_going_on_from_a_file_is_going_on(device, tmp_path):
    whole = QRDQN("CartPole-v1", **SMALL, priority="proportional", n_step=3, device=device).learn(64)
    resumed = QRDQN.load(whole.save(tmp_path / "half"))
    one, other = (agent.learn(64).state() for agent in (whole, resumed))
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        for field in array.dtype.names or (...,):  # what lies between the fields of a record is nothing
            assert np.asarray(array[field]).tobytes() == np.asarray(other.arrays[name][field]).tobytes(), name


def test_metrics_are_reported():
    metrics = QRDQN("CartPole-v1", **SMALL, device="python").learn(64).metrics
    names = ("loss", "action_value", "td_error", "quantile_spread", "gradient_norm", "learning_rate", "n_updates")
    assert all(np.isfinite(metrics[f"train/{name}"]) for name in names)
    assert metrics["train/n_updates"] == 12
    assert 0 < metrics["rollout/exploration_rate"] <= 1


def test_the_network_gives_all_quantiles_of_all_actions():
    agent = QRDQN("CartPole-v1", **SMALL)
    assert agent.network.outputs == 2 * 5


@pytest.mark.parametrize(
    ("environment", "config", "message"),
    [
        ("Pendulum-v1", {}, "QR-DQN chooses one of several actions"),
        ("CartPole-v1", {"quantiles": 0}, "quantiles must be from 1 to 1000"),
        ("CartPole-v1", {"quantiles": 1001}, "quantiles must be from 1 to 1000"),
        ("CartPole-v1", {"huber": -1.0}, "huber must be at least 0"),
        ("CartPole-v1", {"tau": 0.0}, "tau must be above 0"),
        ("CartPole-v1", {"exploration_final": 1.5}, "exploration_final must be from 0 to 1"),
        ("CartPole-v1", {"dueling": True}, "there is no setting 'dueling'"),
    ],
)
def test_what_is_impossible_is_refused(environment, config, message):
    with pytest.raises(ValueError, match=message):
        QRDQN(environment, **config)


@pytest.mark.slow
def test_it_begins_to_balance():
    """Random about 22, solved 475; the preset, seed 0, in 10,000 steps."""
    agent = QRDQN("CartPole-v1", seed=0, device="cpu", threads=1).learn(10_000)
    assert velocirl.evaluate(agent, episodes=50, seed=1).mean_return >= 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cartpole(seed):
    """Solved is 475 of 500; the preset, in 100,000 steps."""
    agent = QRDQN("CartPole-v1", seed=seed, device="cpu", threads=1).learn(100_000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 475
