"""Two states, calm and hot, with a constrained problem of known answer: risk pays, ever less of it, and heat costs.

An action is the chance c of being hot in the next state, which costs 1; it pays c (2 - c), most of all at c = 1. Of
episodes of 10 steps that may cost d, the best take the chance d / 10 in each; at d = 3 they return 5.1, and a cost is
worth 2 (1 - c) = 1.4.
"""

from velocirl import Box, Constraint, Environment, float32, random, record

STEPS = 10


@record
class State:
    hot: float32


def reset(state, params, rng):
    state.hot = 0.0


def step(state, params, action, rng):
    chance = min(max(action[0], 0.0), 1.0)
    state.hot = 1.0 if random.uniform(rng) < chance else 0.0
    return chance * (2.0 - chance), False


def observe(state, params, observation):
    observation[0] = state.hot


gamble = Environment(
    "Gamble-v0", state=State, observation=Box(0, 1, (1,)), action=Box(0, 1, (1,)), max_steps=STEPS, reset=reset,
    step=step, observe=observe, constraints=(Constraint("heat", value="hot", high=0.5),),
)  # fmt: skip
