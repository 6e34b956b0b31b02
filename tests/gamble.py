"""Two states, calm and hot, with a constrained problem of known answer: to be hot pays, and costs.

An action is how probable the hot state is to follow. A hot step pays 1 and costs 1, a calm one pays 0.2. Of episodes of
10 steps that may cost `d`, the best are hot for d steps on average and return 2 + 0.8 d.
"""

from velocirl import Box, Constraint, Discrete, Environment, float32, int32, random, record

STEPS = 10


@record
class State:
    hot: float32
    steps: int32


def reset(state, params, rng):
    state.hot = 0.0
    state.steps = 0


def step(state, params, action, rng):
    return advance(state, action[0], rng), False


def choose(state, params, action, rng):
    return advance(state, float32(action), rng), False


def advance(state, chance, rng):
    state.hot = 1.0 if random.uniform(rng) < chance else 0.0
    state.steps += 1
    return 0.2 + 0.8 * state.hot


def observe(state, params, observation):
    observation[0] = state.hot


GIVEN = {
    "state": State, "observation": Box(0, 1, (1,)), "max_steps": STEPS, "reset": reset, "observe": observe,
    "constraints": (Constraint("heat", value="hot", high=0.5),),
}  # fmt: skip
gamble = Environment("Gamble-v0", action=Box(-1, 1, (1,)), step=step, **GIVEN)
choice = Environment("GambleChoice-v0", action=Discrete(2), step=choose, **GIVEN)
