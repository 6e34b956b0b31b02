"""Algorithms of one file that use what ours do not, on every learner: a new algorithm needs a file, not a learner."""

import numpy as np
import pytest
from choosing import slow_but
from tank import tank
from toys.batch_mean import CentredValues
from toys.constrained import Constrained
from toys.cost_critic import CostCritic
from toys.multiplier import Held
from toys.soft_maximum import SoftMaximum
from toys.two_values import TwoValues

REPLAY = {"num_envs": 2, "learning_starts": 16, "train_every": 4, "batch_size": 16, "buffer_size": 500}
REPLAY["hidden"] = (8, 8)
ROLLOUT = {"num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 2, "hidden": (8, 8)}
TOYS = {
    CentredValues: ("CartPole-v1", {**REPLAY, "target_every": 2}, 64),
    SoftMaximum: ("Pendulum-v1", REPLAY, 64),
    TwoValues: ("CartPole-v1", ROLLOUT, 96),
    Held: ("CartPole-v1", ROLLOUT, 96),
    Constrained: (tank(), ROLLOUT, 96),
    CostCritic: (tank(), {**REPLAY, "n_step": 2}, 64),
}
toys = pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
# Constrained has several values of a rollout as well.
compiled_toys = pytest.mark.parametrize("toy", slow_but(TOYS.keys() - {TwoValues}, TOYS), ids=lambda toy: toy.name)


def trained(toy, device, **more):
    environment, config, steps = TOYS[toy]
    agent = toy(environment, seed=1, device=device, **{"threads": 1, **config, **more})
    return agent.learn(steps)


def shown(agent):
    return {name: value for name, value in agent.metrics.items() if name.startswith("train/")}


@compiled_toys
def test_compiled_code_does_what_plain_python_does(toy):
    ours, plain = trained(toy, "cpu"), trained(toy, "python")
    assert np.abs(ours.parameters - plain.parameters).max() < 1e-5
    assert shown(ours) == pytest.approx(shown(plain), rel=1e-3, abs=1e-5, nan_ok=True)
    first = toy(TOYS[toy][0], seed=1, hidden=(8, 8)).parameters
    assert np.abs(ours.parameters - first).max() > 1e-3


@compiled_toys
def test_two_threads_learn(toy):
    assert np.isfinite(trained(toy, "cpu", threads=2).parameters).all()


@pytest.mark.parametrize("toy", slow_but({SoftMaximum, Constrained}, TOYS), ids=lambda toy: toy.name)
def test_torch_learns(toy):
    pytest.importorskip("torch")
    agent = trained(toy, "cpu", network="mlp(8, 8)")
    assert all(np.isfinite(value) for value in shown(agent).values() if value is not None)


@toys
@pytest.mark.cuda
def test_a_gpu_learns(toy):
    agent = trained(toy, "cuda", precision="float32")
    assert np.isfinite(agent.parameters).all()


@pytest.mark.parametrize(
    ("toy", "device"),
    [
        pytest.param(toy, device, marks=pytest.mark.slow if (toy, device) == (TwoValues, "cpu") else ())
        for toy in TOYS
        for device in ("cpu", "python")
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_resuming_is_exact(toy, device, tmp_path):
    environment, config, steps = TOYS[toy]
    whole = toy(environment, seed=1, device=device, **{"threads": 1, **config})
    whole.learn(steps)
    path = whole.save(tmp_path / "agent")
    again = toy.load(path)
    whole.learn(steps)
    again.learn(steps)
    assert np.array_equal(whole.parameters, again.parameters)
    for name, array in whole.arrays().items():
        assert np.array_equal(np.asarray(array), np.asarray(again.arrays()[name])), name


def test_a_saved_multiplier_is_the_one_that_moved():
    agent = trained(Held, "python")
    multiplier, count = agent.arrays()["numbers.values"]
    assert multiplier != 1.0
    assert count == 96 * 2  # rows of every minibatch, in two epochs


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_violations_are_counted_in_all_steps_and_go_on_where_a_run_does(device, tmp_path):
    """All costs of training are 0 or 1, so that those of whole episodes and of those under way make up the count."""
    whole = trained(Constrained, device)
    again = Constrained.load(whole.save(tmp_path / "agent"))
    for agent in (whole, again):
        agent.learn(32)
        episodes = sum(agent.recent.reported["cost"])
        under_way = agent.learner.fleet.get_state()["cost_total"].sum()
        assert agent.metrics["rollout/violations"] == agent.recent.violations == episodes + under_way > 0
        parts = sum(sum(agent.recent.reported[f"cost/{name}"]) for name in ("level", "inflow", "weight"))
        assert parts == episodes
    assert {name: value for name, value in again.metrics.items() if not name.startswith("time/")} == {
        name: value for name, value in whole.metrics.items() if not name.startswith("time/")
    }


def test_an_algorithm_that_reads_costs_needs_constraints():
    with pytest.raises(ValueError, match="TOY-CONSTRAINED learns to keep constraints, and CartPole-v1 has none"):
        Constrained("CartPole-v1")
