"""A small random decision process whose tables are parameters, so that all tests of tables share what is compiled.

Every action leads to one of two states, at random; some are illegal, some end the episode; the time limit is 20 steps.
"""

import numpy as np

from velocirl import Discrete, Environment, float32, int8, int32, random, record
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.random_models import random_model

STATES, ACTIONS, LIMIT = 6, 3, 20
PAIRS = 18


@record
class State:
    place: int32


@record
class Params:  # of the pair state * ACTIONS + action; of its two outcomes
    chance: float32[18] = 1.0  # of the first one
    first: int32[18]
    second: int32[18]
    first_reward: float32[18]
    second_reward: float32[18]
    first_ends: int8[18]
    second_ends: int8[18]
    allowed: int8[18] = 1


def reset(state, params, rng):
    state.place = random.integer(rng, 0, STATES)


def step(state, params, action, rng):
    pair = ACTIONS * state.place + action
    if random.uniform(rng) < params.chance[pair]:
        state.place = params.first[pair]
        return params.first_reward[pair], params.first_ends[pair] != 0
    state.place = params.second[pair]
    return params.second_reward[pair], params.second_ends[pair] != 0


def observe(state, params, observation):
    observation[0] = state.place


def legal(state, params, mask):
    for a in range(ACTIONS):
        mask[a] = params.allowed[ACTIONS * state.place + a]


garnet = Environment(
    "Garnet-v0", state=State, params=Params, observation=Discrete(STATES), action=Discrete(ACTIONS), max_steps=LIMIT,
    reset=reset, step=step, observe=observe, legal=legal,
)  # fmt: skip


def model_of(seed, ending=0.1, illegal=0.2):
    """A random one, its rewards of a deviation of 0.5, as the environment has them."""
    made = random_model(STATES, ACTIONS, 2, seed, ending=ending, illegal=illegal)
    return TabularModel(
        made.states, made.actions, made.offsets, made.probabilities, made.next_states,
        (0.5 * made.rewards).astype(np.float32), made.terminated, made.start,
    )  # fmt: skip


def one_way(reward, ends):
    """All actions of all states lead to the first state."""
    outcome = (0.5, 0, reward, ends)
    return TabularModel.from_outcomes([[[outcome, outcome]] * ACTIONS] * STATES)


def params_of(model):
    """What the environment needs to be that model, which has two outcomes for each legal pair."""
    allowed = model.legal.ravel()

    def column(array, outcome):
        full = np.zeros(PAIRS, array.dtype)
        full[allowed] = array.reshape(-1, 2)[:, outcome]
        return full

    return {
        "chance": column(model.probabilities, 0),
        "first": column(model.next_states, 0),
        "second": column(model.next_states, 1),
        "first_reward": column(model.rewards, 0),
        "second_reward": column(model.rewards, 1),
        "first_ends": column(model.terminated, 0),
        "second_ends": column(model.terminated, 1),
        "allowed": allowed,
    }


def install(agent, params):
    """Give all copies of an agent that has not been trained yet these parameters."""
    agent.prepare()
    envs = agent.learner.fleet
    for name, values in params.items():
        envs.copies.params[name][:] = values
    envs.reset()  # so that masks are those of the parameters
    return agent
