"""Processes that share a training out: n of one thread learn as one of n threads, whatever their shares."""

import dataclasses

import numpy as np
import pytest
from threads_as_ranks import run_ranks

from velocirl.algorithms.online.ppo import PPO
from velocirl.learners.making import make_rollout
from velocirl.program.reducing import ALONE, Part, part_of, shares_of
from velocirl.training.persistence import Goal

ITERATIONS = 14
SETTINGS = {
    "num_envs": 7, "horizon": 16, "epochs": 3, "minibatch_size": 20, "hidden": (8,), "seed": 3, "device": "cpu",
    "target_kl": 0.003, "max_grad_norm": 0.3, "max_grad_value": 0.05, "normalise_observations": True,
    "normalise_rewards": True,
}  # fmt: skip


class Rank:
    """One that is asked for its part only."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def test_shares_are_equal_but_for_the_last_and_never_empty():
    assert shares_of(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert shares_of(8, 2) == [(0, 4), (4, 8)]
    assert shares_of(4, 3) == [(0, 2), (2, 4)]


def test_processes_of_one_thread_have_the_parts_of_threads():
    alone = part_of(7, 3, ALONE)
    assert alone == Part(0, 7, [(0, 3), (3, 6), (6, 7)], 0, [3, 3, 1])
    parts = [part_of(7, 1, Rank(rank, 3)) for rank in range(3)]
    assert [(one.first, one.copies, one.first_thread) for one in parts] == [(0, 3, 0), (3, 3, 1), (6, 1, 2)]
    assert all(one.all_copies == alone.all_copies for one in parts)
    assert part_of(10, 2, Rank(1, 2)) == Part(5, 5, [(0, 3), (3, 5)], 2, [3, 2, 3, 2])


def train(threads, reducer=ALONE):
    """What an agent, its reports and its learner are after some iterations."""
    agent = PPO("Pendulum-v1", **SETTINGS, threads=threads, shares=threads)
    agent.goal = Goal(0, 10_000)
    task = dataclasses.replace(agent.task(), reducer=reducer)
    learner = make_rollout(task, agent.num_parameters, native=True)
    reports = [learner.iterate(agent.schedule(5e-3), (k + 1) * agent.config.batch) for k in range(ITERATIONS)]
    learner.settle()
    moments = agent.observation_moments.state.copy(), agent.reward_moments.state.copy()
    return reports, learner.state(), agent.policy.parameters, moments


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_of_one_thread_learn_as_one_of_as_many_threads(size):
    """Of 7 copies; with clipping, an early stop, and normalisers of observations and rewards."""
    one_reports, one_state, one_parameters, one_moments = train(size)
    assert {report.minibatches for report in one_reports} > {18}  # some were stopped
    ranks = run_ranks(size, lambda reducer: train(1, reducer))
    for reports, state, parameters, moments in ranks:
        np.testing.assert_allclose(parameters, one_parameters, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(state["policy.steps"], one_state["policy.steps"])
        np.testing.assert_allclose(state["policy.moments"], one_state["policy.moments"], rtol=1e-4, atol=1e-6)
        for own, theirs in zip(moments, one_moments, strict=True):
            np.testing.assert_allclose(own, theirs, rtol=1e-9)
        for report, theirs in zip(reports, one_reports, strict=True):
            assert report.minibatches == theirs.minibatches
            assert report.lengths == theirs.lengths
            np.testing.assert_allclose(report.returns, theirs.returns, rtol=1e-5)
            for name in ("gradient_norm", "explained_variance"):
                np.testing.assert_allclose(getattr(report, name), getattr(theirs, name), rtol=1e-4)
            for name, mean in report.means.items():
                np.testing.assert_allclose(mean, theirs.means[name], rtol=1e-4, atol=1e-6)
    assert sum(len(report.returns) for report in one_reports) > 0
    for name in ("policy.rng", "fleet.rng", "learner.rng"):
        np.testing.assert_array_equal(np.concatenate([state[name] for _, state, _, _ in ranks]), one_state[name])


class Broken:
    """The first of two processes, which loses the other after some sums."""

    rank, size = 0, 2

    def __init__(self, lasts):
        self.left = lasts

    def sum(self, array):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the other one is gone")


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_reduction_raises_within_compiled_loops_is_raised_after_them(threads):
    """All threads leave the update, although only the first one has heard of it."""
    with pytest.raises(ConnectionError, match="the other one is gone"):
        train(threads, Broken(20))
