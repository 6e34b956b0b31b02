"""Processes that share out the copies of whole batches: they learn as one that has them all, whatever their shares.

Each draws its part of a minibatch from its own copies, as the threads of the block learner do: that is the oracle. A
rollout in one minibatch is the same however it is shared out.
"""

import dataclasses

import numpy as np
import pytest
from constrained import OFTEN
from fragile import fragile
from threads_as_ranks import run_ranks

from velocirl.algorithms.online.ppo import A2C, PPO
from velocirl.algorithms.safe.ppo_lagrangian import PPOLagrangian
from velocirl.learners.making import make_rollout
from velocirl.program.faults import NumericalError
from velocirl.program.reducing import ALONE
from velocirl.training.persistence import Goal

SETTINGS = {
    "num_envs": 7, "horizon": 16, "epochs": 2, "minibatch_size": 28, "hidden": (8,), "seed": 3, "threads": 1,
    "target_kl": 0.0005, "max_grad_norm": 0.3, "max_grad_value": 0.05, "normalise_observations": True,
    "normalise_rewards": True,
}  # fmt: skip


def train(reducer=ALONE, *, iterations=5, native=False, algorithm=PPO, environment="CartPole-v1", **changes):
    """What an agent, its reports and its learner are after some iterations."""
    given = {name: value for name, value in {**SETTINGS, **changes}.items() if value is not None}
    agent = algorithm(environment, **given)
    agent.goal = Goal(0, 10_000)
    task = dataclasses.replace(agent.task(), reducer=reducer)
    learner = make_rollout(task, agent.num_parameters, native=native)
    reports = [learner.iterate(agent.schedule(5e-3), (k + 1) * agent.config.batch) for k in range(iterations)]
    learner.settle()
    moments = agent.observation_moments.state.copy(), agent.reward_moments.state.copy()
    return reports, learner.state(), agent.policy.parameters.copy(), moments


def assert_alike(ranks, expected):
    """All ranks have learnt what one process has."""
    one_reports, one_state, one_parameters, one_moments = expected
    for reports, state, parameters, moments in ranks:
        np.testing.assert_allclose(parameters, one_parameters, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(state["policy.steps"], one_state["policy.steps"])
        np.testing.assert_allclose(state["policy.moments"], one_state["policy.moments"], rtol=1e-3, atol=1e-5)
        for own, theirs in zip(moments, one_moments, strict=True):
            np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-9)
        for report, theirs in zip(reports, one_reports, strict=True):
            assert report.minibatches == theirs.minibatches
            assert report.lengths == theirs.lengths
            np.testing.assert_allclose(report.returns, theirs.returns, rtol=1e-4)
            for name in ("gradient_norm", "explained_variance"):
                np.testing.assert_allclose(getattr(report, name), getattr(theirs, name), rtol=1e-3, atol=1e-5)
            for name, mean in report.means.items():
                np.testing.assert_allclose(mean, theirs.means[name], rtol=1e-3, atol=1e-5)
    assert sum(len(report.returns) for report in one_reports) > 0
    for name in ("policy.rng", "fleet.rng"):
        np.testing.assert_array_equal(np.concatenate([state[name] for _, state, _, _ in ranks]), one_state[name])


def assert_stopped(expected, minibatches):
    """Some updates ended early."""
    assert min(report.minibatches for report in expected[0]) < minibatches


@pytest.mark.parametrize("size", [2, 3])
def test_the_interpreter_learns_on_ranks_as_threads_do(size):
    """Of 7 copies; with clipping, an early stop, and normalisers of observations and rewards."""
    expected = train(native=True, device="cpu", threads=size, shares=size)
    assert_stopped(expected, 8)
    assert_alike(run_ranks(size, lambda reducer: train(reducer, device="python")), expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_torch_learns_on_ranks_as_threads_do(size, monkeypatch, one_torch_thread):
    """In the order in which the interpreter draws."""
    devices = pytest.importorskip("velocirl.backends.torch.device")
    monkeypatch.setattr(devices.TorchCPUDevice, "sequential", True)
    expected = train(native=True, device="cpu", threads=size, shares=size)
    assert_alike(run_ranks(size, lambda reducer: train(reducer, device="cpu")), expected)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("network", ["mlp(8)", "gru(6)"])
def test_torch_networks_learn_on_ranks_as_in_one_process(size, network, one_torch_thread):
    """A rollout in one minibatch, with steps along the mean gradient of several rollouts of copies."""
    pytest.importorskip("torch")
    changes = {"device": "cpu", "hidden": None, "network": network, "minibatch_size": 112, "epochs": 6,
               "target_kl": 1e-4}  # fmt: skip
    expected = train(**changes)
    assert_stopped(expected, 6)
    assert_alike(run_ranks(size, lambda reducer: train(reducer, **changes)), expected)


def test_gradients_of_several_minibatches_make_one_step_of_all(one_torch_thread):
    """What each process has gathered is added up at the step; A2C draws whole copies."""
    pytest.importorskip("torch")
    changes = {"algorithm": A2C, "device": "cpu", "gradient_accumulation": 4, "num_envs": 8, "minibatch_size": 32,
               "minibatches": "environments", "epochs": None, "target_kl": None}  # fmt: skip
    assert_alike(run_ranks(2, lambda reducer: train(reducer, **changes)), train(**changes))


def test_constraints_are_held_by_the_episodes_of_all():
    """Multipliers follow from what the episodes of all copies cost."""
    changes = {"algorithm": PPOLagrangian, "environment": OFTEN["CartPole-v1"], "device": "python",
               "minibatch_size": 112, "cost_limit": 1.0}  # fmt: skip
    expected = train(**changes)
    ranks = run_ranks(3, lambda reducer: train(reducer, **changes))
    assert_alike(ranks, expected)
    assert expected[1]["numbers.values"].max() > 0
    for reports, state, _, _ in ranks:
        np.testing.assert_allclose(state["numbers.values"], expected[1]["numbers.values"], rtol=1e-5)
        assert [one.violations for one in reports] == [one.violations for one in expected[0]]
        assert [one.reported for one in reports] == [one.reported for one in expected[0]]
    assert sum(one.violations for one in expected[0]) > 0


def test_a_number_that_is_none_is_told_of_by_all_with_the_copy_that_had_it():
    """Copy 5 of 7 is in the second of two, and the last of the second of three."""

    def spoilt(reducer):
        agent = PPO(fragile, **{**SETTINGS, "device": "python"})
        task = dataclasses.replace(agent.task(), reducer=reducer)
        learner = make_rollout(task, agent.num_parameters)
        state, copy = learner.fleet.get_state(), 5 - task.part.first
        if 0 <= copy < task.part.copies:
            state["params"]["at"][copy], state["params"]["reward"][copy] = 9, np.nan
            learner.fleet.write(state)
        with pytest.raises(NumericalError) as caught:
            learner.iterate(agent.schedule(5e-3), agent.config.batch)
        return str(caught.value)

    (expected,) = run_ranks(1, spoilt)
    assert "copy 5, step 56 of the run" in expected
    assert run_ranks(2, spoilt) == [expected] * 2
    assert run_ranks(3, spoilt) == [expected] * 3
