"""An environment one of whose numbers can be made to be none, for the tests of the guard against that."""

from math import inf

from velocirl import Box, Discrete, Environment, float32, record


@record
class State:
    count: float32


@record
class Params:
    at: float32 = -1  # the step of which this copy's number goes wrong
    reward: float32 = 0
    observation: float32 = 0


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    state.count += 1
    return params.reward if state.count == params.at else 1.0, False


def observe(state, params, observation):
    observation[0] = params.observation if state.count == params.at else 0.5


fragile = Environment(
    "Fragile-v0", state=State, params=Params, observation=Box(-inf, inf, (1,)), action=Discrete(2), max_steps=1000,
    reset=reset, step=step, observe=observe,
)  # fmt: skip
