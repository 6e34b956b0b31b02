"""Rounds that a rank takes by itself between two exchanges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from velocirl.program.seeding import Seeds, spread_seed
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import Outcome, TableLearner

# Rates change linearly within a call, so a call is at most this part of the training.
CALLS = 20
NOTHING = Outcome(0, 0.0, [], [])


def seeds_of_rank(seed: int, rank: int, steps: int) -> Seeds:
    """Return the seeds of a rank that begins after `steps` steps; rank 0 at step 0 has the agent's own seeds.

    Every other rank and every later start has other streams, so that no two see the same episodes.
    """
    if rank == 0 and steps == 0:
        return spread_seed(seed)
    words = np.random.SeedSequence(seed, spawn_key=(rank, steps)).generate_state(2, np.uint64)
    return spread_seed(int(words[0]) << 64 | int(words[1]))


def learn_rounds(agent: TabularAgent, learner: TableLearner, first: int, rounds: int, ranks: int) -> Outcome:
    """Take `rounds` rounds, in parallel with `ranks - 1` other ranks; `first` is the step of the run before them."""
    goal = agent.goal
    assert goal is not None  # noqa: S101 - learning
    steps = agent.num_envs * ranks  # one round of all ranks
    calls = min(rounds, -(-CALLS * rounds * steps // goal.total))
    bounds = [rounds * k // calls for k in range(calls + 1)]
    outcomes = []
    for begin, end in pairwise(bounds):
        pace = agent.pace_between(first + begin * steps, first + end * steps, end - begin)
        outcomes.append(learner.run(pace, first + begin * steps))
    return combined(outcomes)


def combined(outcomes: list[Outcome]) -> Outcome:
    """Combine several outcomes into one, their episodes one after another."""
    steps = sum(one.steps for one in outcomes)
    error = sum(one.error * one.steps for one in outcomes) / max(steps, 1)
    returns = [value for one in outcomes for value in one.returns]
    lengths = [value for one in outcomes for value in one.lengths]
    names = outcomes[0].reported if outcomes else ()
    reported = {name: [value for one in outcomes for value in one.reported[name]] for name in names}
    return Outcome(steps, error, returns, lengths, reported)
