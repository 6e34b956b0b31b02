"""The tabular algorithms in their variants, on one environment, for the tests of all of them."""

import garnet
import numpy as np
from garnet import ACTIONS, STATES
from tabular_oracle import Reference

from velocirl.algorithms import load_algorithms
from velocirl.training.persistence import ALGORITHMS

load_algorithms()

GAMMA = 0.8
CASES = {
    "q-learning": {},
    "double-q-learning": {},
    "sarsa": {},
    "expected-sarsa": {},
    "q-lambda": {},
    "q-learning 3": {"n_step": 3},
    "double-q-learning 3": {"n_step": 3},
    "sarsa 3": {"n_step": 3},
    "expected-sarsa 3": {"n_step": 3},
    "q-lambda accumulating": {"traces": "accumulating"},
}
QUICK = {"q-learning", "double-q-learning", "expected-sarsa", "q-lambda"}

OPTIMAL = {"q-learning": 1.0, "double-q-learning": 1.0, "q-lambda": 0.5}  # these learn the best values, exploring so


def made(case, num_envs=5, **config):
    """An agent that is not trained yet."""
    name = case.partition(" ")[0]
    defaults = {"num_envs": num_envs, "gamma": GAMMA, "seed": 3}
    return ALGORITHMS[name](garnet.garnet, **{**defaults, **CASES[case], **config})


def reference(case, step, rate):
    """What it should do."""
    config = CASES[case]
    return Reference(
        case.partition(" ")[0], STATES, ACTIONS, gamma=GAMMA, step=step, rate=rate, n_step=config.get("n_step", 1),
        trace_decay=0.9, accumulating=config.get("traces") == "accumulating",
    )  # fmt: skip


def table_of(agent):
    """Its values, (sets, states, actions)."""
    return agent.table.look_up(np.arange(STATES)).transpose(1, 0, 2)
