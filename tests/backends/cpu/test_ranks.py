"""Learning from a memory and from data on several processes: as one process would from the same batches."""

import dataclasses

import numpy as np
import pytest
from gamble import gamble
from recorded import made_up
from threads_as_ranks import run_ranks

from velocirl import DQN, SAC, TD3BC, SACLagrangian
from velocirl.buffers.replay import ReplayBuffer, Selection, nothing_to_enter, nothing_to_revise
from velocirl.engine.random import integer
from velocirl.learners.making import make_offline, make_replay
from velocirl.program.reducing import ALONE, parts_of
from velocirl.program.sharing import even_shares
from velocirl.training.persistence import Goal

COMMON = {"seed": 3, "device": "cpu", "hidden": (8,), "max_grad_norm": 0.5}
COPIES = 7
LEARNERS = {
    "sac": (SAC, "Pendulum-v1", {"num_envs": COPIES, "batch_size": 20, "train_every": 7, "learning_starts": 30}),
    "dqn": (DQN, "CartPole-v1", {"num_envs": COPIES, "batch_size": 16, "train_every": 5, "n_step": 3,
                                 "learning_starts": 20, "buffer_size": 150}),
    "limits": (SACLagrangian, gamble, {"num_envs": COPIES, "batch_size": 20, "train_every": 7, "learning_starts": 30,
                                       "gamma": 0.5, "multiplier_episodes": 5, "cost_limits": {"heat": 0.5}}),
}  # fmt: skip


def as_ranks(strata):
    """A selection that draws the rows of a batch as ranks do, of which each has some of the columns of a ring.

    `strata` (rows of the batch, 3): the ring's columns, and the first and the number of those that a row is drawn from.
    """

    def draw(book, counts, rng, beta, places, weights):
        for i in range(len(places)):
            columns, first, own = book[0][i, 0], book[0][i, 1], book[0][i, 2]
            k = integer(rng, 0, counts[1] // columns * own)
            places[i] = k // own * columns + first + k % own
            weights[i] = 1.0

    return Selection(nothing_to_enter, draw, nothing_to_revise), (strata,)


def strata_of(batch, columns, shares):
    strata = np.zeros((batch, 3), np.int64)
    for first, stop in shares:
        strata[batch * first // columns : batch * stop // columns] = columns, first, stop - first
    return strata


def run(make, agent, iterations, steps, reducer=ALONE):
    agent.goal = Goal(0, 2000)
    learner = make(dataclasses.replace(agent.task(), reducer=reducer))
    pace = agent.pace(steps) if hasattr(agent, "pace") else None
    reports = [learner.iterate(pace, (k + 1) * steps * agent.config.num_envs) for k in range(iterations)]
    return reports, learner.state(), agent.policy.parameters


def assert_alike(ranks, reports, state, parameters):
    for own_reports, own, own_parameters in ranks:
        np.testing.assert_allclose(own_parameters, parameters, rtol=1e-4, atol=1e-5)
        for name in own:
            if name.endswith((".parameters", ".moments", ".steps", ".values", "memory.rng", "learner.updates")):
                np.testing.assert_allclose(own[name], state[name], rtol=1e-3, atol=1e-5, err_msg=name)
        for report, theirs in zip(own_reports, reports, strict=True):
            assert report.minibatches == theirs.minibatches
            assert report.lengths == theirs.lengths
            np.testing.assert_allclose(report.returns, theirs.returns, rtol=1e-4)
            np.testing.assert_allclose(report.gradient_norm, theirs.gradient_norm, rtol=1e-3)
            for name, mean in report.means.items():
                np.testing.assert_allclose(mean, theirs.means[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", LEARNERS)
def test_ranks_with_a_memory_learn_as_one_process_from_the_same_batches(monkeypatch, name, size):
    """Of 7 copies, whose steps are remembered by whom they belong to; of a ring that went around."""
    kind, environment, settings = LEARNERS[name]

    def train(threads, reducer=ALONE):
        agent = kind(environment, **COMMON, **settings, threads=threads, shares=threads)
        return run(lambda task: make_replay(task, 20, 100, native=True), agent, 3, 20, reducer)

    kind(environment, **COMMON, **settings).prepare()  # compiled by one
    ranks = run_ranks(size, lambda reducer: train(1, reducer))
    shares = [(one.first, one.first + one.copies) for one in parts_of(COPIES, 1, size)]
    selection = as_ranks(strata_of(settings["batch_size"], COPIES, shares))
    monkeypatch.setattr(ReplayBuffer, "selection", lambda self, count: selection)
    reports, state, parameters = train(size)
    assert reports[-1].minibatches > 0
    assert_alike(ranks, reports, state, parameters)
    for one in ("policy.rng", "fleet.rng", "learner.rng"):
        np.testing.assert_array_equal(np.concatenate([own[one] for _, own, _ in ranks]), state[one])


def test_priorities_are_weighed_by_how_often_each_record_is_drawn_by_any_rank():
    """3, 3 and 1 of 7 copies: a weight is (least rate of all / rate)^beta, and a rate rows * p / sum p."""
    kind, environment, settings = LEARNERS["dqn"]
    settings = {**settings, "priority": "proportional", "priority_beta": 0.7, "priority_beta_final": 0.7}
    kind(environment, **COMMON, **settings).prepare()

    def draw(reducer):
        agent = kind(environment, **COMMON, **settings, threads=1)
        agent.goal = Goal(0, 2000)
        learner = make_replay(dataclasses.replace(agent.task(), reducer=reducer), 20, 100, native=True)
        pace = agent.pace(20)
        learner.iterate(pace, 140)
        buffer, batch = learner.ring.buffer, learner.updates.batch
        filled = len(buffer)
        priorities = buffer.bookkeeping()["priorities"]
        learner.updates.begin(pace._replace(learning_rate=0.0), 140)
        learner.updates.run(1, 140)
        rates = len(batch.places) * priorities[batch.places] / priorities[:filled].sum(dtype=np.float64)
        buffer.greatest[0] = 50.0 + reducer.rank
        learner.iterate(pace._replace(train_every=10**6), 280)
        return rates, batch.weights.copy(), float(buffer.greatest[0])

    ranks = run_ranks(3, draw)
    assert [len(rates) for rates, *_ in ranks] == [6, 7, 3]
    least = min(rates.min() for rates, *_ in ranks)
    for rates, weights, greatest in ranks:
        np.testing.assert_allclose(weights, (least / rates) ** 0.7, rtol=1e-4)
        assert greatest == 52.0
    assert len({weights.max() for _, weights, _ in ranks}) > 1  # one rank's is 1, not that of each


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_with_data_learn_as_one_process_from_the_same_batches(monkeypatch, size):
    """Each has a part of the data, of which all draw their part of a batch of 10."""
    data = made_up("Pendulum-v1")

    def train(threads, reducer=ALONE):
        agent = TD3BC(data=data, batch_size=10, **COMMON, threads=threads, shares=threads)
        agent.goal = Goal(0, 2000)
        learner = make_offline(dataclasses.replace(agent.task(), reducer=reducer), 100, native=True)
        pace = SAC("Pendulum-v1", **COMMON)
        pace.goal = agent.goal
        reports = [learner.iterate(pace.pace(6), 6 * (k + 1)) for k in range(3)]
        return reports, learner.state(), agent.policy.parameters

    TD3BC(data=data, **COMMON).prepare()  # compiled by one
    ranks = run_ranks(size, lambda reducer: train(1, reducer))
    strata = np.zeros((10, 3), np.int64)
    for (low, high), (first, stop) in zip(even_shares(10, size), even_shares(len(data), size), strict=True):
        strata[low:high] = len(data), first, stop - first
    monkeypatch.setattr(ReplayBuffer, "selection", lambda self, count: as_ranks(strata))
    assert_alike(ranks, *train(size))
