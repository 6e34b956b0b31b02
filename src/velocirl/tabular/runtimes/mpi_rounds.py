"""The rounds that a rank takes by itself, from one exchange with the others to the next."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from velocirl.program.seeding import Seeds, spread_seed
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import Outcome, TableLearner

# Rates go in a straight line for as long as a call lasts, so that none lasts longer than this share of the training.
CALLS = 20
NOTHING = Outcome(0, 0.0, [], [])


def seeds_of_rank(seed: int, rank: int, steps: int) -> Seeds:
    """The seeds of a rank that begins after so many steps: the agent's own for the first one at the very beginning.

    Every other rank and every later beginning has other streams, so that no two see the same episodes.
    """
    if rank == 0 and steps == 0:
        return spread_seed(seed)
    words = np.random.SeedSequence(seed, spawn_key=(rank, steps)).generate_state(2, np.uint64)
    return spread_seed(int(words[0]) << 64 | int(words[1]))


def learn_rounds(agent: TabularAgent, learner: TableLearner, first: int, rounds: int, ranks: int) -> Outcome:
    """Take rounds, while so many ranks do the same; the run has taken `first` steps before them."""
    goal = agent.goal
    assert goal is not None  # noqa: S101 - learning
    steps = agent.num_envs * ranks  # of a round of all
    calls = min(rounds, -(-CALLS * rounds * steps // goal.total))
    bounds = [rounds * k // calls for k in range(calls + 1)]
    outcomes = []
    for begin, end in pairwise(bounds):
        pace = agent.pace_between(first + begin * steps, first + end * steps, end - begin)
        outcomes.append(learner.run(pace, first + begin * steps))
    return combined(outcomes)


def combined(outcomes: list[Outcome]) -> Outcome:
    """Several outcomes as one, their episodes one after another."""
    steps = sum(one.steps for one in outcomes)
    error = sum(one.error * one.steps for one in outcomes) / max(steps, 1)
    returns = [value for one in outcomes for value in one.returns]
    lengths = [value for one in outcomes for value in one.lengths]
    names = outcomes[0].reported if outcomes else ()
    reported = {name: [value for one in outcomes for value in one.reported[name]] for name in names}
    return Outcome(steps, error, returns, lengths, reported)
