"""An environment one of whose numbers can be made to be none, for the tests of the guard against that."""

from math import inf

from velocirl import Box, Discrete, Environment, float32, record
from velocirl.vector.native import FleetVectorEnv


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


def fleet_of(agent):
    """The copies that an agent learns from, on whatever device."""
    learner = agent.learner
    parts = learner, getattr(learner, "collector", None), getattr(learner, "steps", None)
    held = [getattr(part, name, None) for part in parts for name in ("envs", "_envs", "fleet", "_fleet")]
    return next(one for one in held if isinstance(one, FleetVectorEnv))


def spoil(agent, copy, at, **numbers):
    """Let what a copy gives in its step number `at` be these numbers, past all that would refuse them."""
    fleet = fleet_of(agent)
    state = fleet.get_state()
    for name, value in {"at": at, **numbers}.items():
        state["params"][name][copy] = value
    fleet.write(state)
