"""An environment of two fields that several tests define anew in one of its functions."""

from velocirl import Box, Discrete, Environment, float32, int32, random, record


@record
class State:
    position: float32
    count: int32


def reset(state, params, rng):
    state.position = random.uniform(rng, -1, 1)
    state.count = 0


def step(state, params, action, rng):
    state.position += 0.1 * random.normal(rng)
    state.count += 1
    return state.position, abs(state.position) > 2


def observe(state, params, observation):
    observation[0] = state.position


def drifting(name, **changes):
    """A point that drifts until it is far away; whatever is given takes the place of what it has."""
    spaces = {"observation": Box(-5, 5, (1,)), "action": Discrete(2)}
    functions = {"reset": reset, "step": step, "observe": observe}
    return Environment(name, **{"state": State, "max_steps": 10, **spaces, **functions, **changes})
