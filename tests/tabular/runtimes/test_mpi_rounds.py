"""The rounds of a rank: streams of its own, and rates that go on where they were."""

from itertools import pairwise

import numpy as np
import pytest

from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.program.seeding import spread_seed
from velocirl.tabular.learner import Outcome
from velocirl.tabular.runtimes.mpi_rounds import combined, learn_rounds, seeds_of_rank
from velocirl.training.persistence import Goal


class Recorder:
    """Takes no rounds, but keeps what was asked for."""

    def __init__(self):
        self.calls = []

    def run(self, pace, first):
        self.calls.append((pace, first))
        return Outcome(pace.rounds, 1.0, [float(first)], [pace.rounds])


def test_every_rank_and_every_beginning_has_seeds_of_its_own():
    """The first rank at the very beginning has those of an agent on one core."""
    all_seeds = [seeds_of_rank(7, rank, steps) for rank in range(4) for steps in (0, 1, 10**12)]
    assert all_seeds[0] == spread_seed(7)
    words = [word for seeds in all_seeds for word in seeds]
    assert len(set(words)) == len(words)
    assert seeds_of_rank(7, 3, 5) == seeds_of_rank(7, 3, 5) != seeds_of_rank(8, 3, 5)


@pytest.mark.parametrize(("rounds", "calls"), [(1, 1), (100, 8), (250, 20)])
def test_rates_follow_their_schedules_from_call_to_call(rounds, calls):
    """Of 10 copies on 4 ranks, in a training of 10,000 steps: a call spans a twentieth of it at most."""
    agent = QLearning("FrozenLake-v1", num_envs=10, learning_rate_schedule="exponential", exploration_schedule="linear")
    agent.goal = Goal(1000, 10_000)
    learner = Recorder()
    outcome = learn_rounds(agent, learner, 1000, rounds, 4)
    paces = [pace for pace, _ in learner.calls]
    assert len(paces) == calls
    assert sum(pace.rounds for pace in paces) == rounds == outcome.steps
    first = 1000
    for pace, said in learner.calls:
        assert said == first
        assert pace.step == agent.learning_rate_at(agent.goal.progress(first))
        assert pace.rate == agent.exploration_at(agent.goal.progress(first))
        first += 40 * pace.rounds
    for before, after in pairwise(paces):
        assert before.step + before.rounds * before.step_change == pytest.approx(after.step)
        assert before.rate + before.rounds * before.rate_change == pytest.approx(after.rate)


def test_outcomes_are_combined_by_their_steps():
    one, other = Outcome(10, 2.0, [1.0], [4]), Outcome(30, 4.0, [2.0, 3.0], [5, 6])
    both = combined([one, other])
    assert both == Outcome(40, 3.5, [1.0, 2.0, 3.0], [4, 5, 6])
    assert np.isfinite(combined([]).error)
