"""A tank that must neither run dry nor overflow: the environment of the tests of constraints."""

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, random, record

SIGNALS = {"level": "m", "inflow": "m3/s"}


@record
class State:
    level: float32
    inflow: float32


@record
class Params:
    highest: float32 = between(0.0, 100.0, default=2.0)
    noise: float32 = between(0.0, 1.0, default=0.0)


def reset(state, params, rng):
    state.level = 1.0
    state.inflow = 0.0


def step(state, params, action, rng):
    state.inflow = action[0]
    state.level += action[0] + params.noise * random.normal(rng)
    return 1.0, False


def observe(state, params, observation):
    observation[0] = state.level
    observation[1] = state.inflow


def weight(state, params):
    return 2.0 * state.level


LEVEL = Constraint("level", value="level", low=0.25, high="highest", unit="m", penalty=2.0)
INFLOW = Constraint("inflow", value="inflow", high=0.75, penalty=0.5)
WEIGHT = Constraint("weight", value=weight, high=6.0, unit="t", critical=True)


def tank(**changes):
    given = {
        "state": State, "params": Params, "observation": Box(-np.inf, np.inf, (2,)), "action": Box(-4, 4, (1,)),
        "max_steps": 8, "reset": reset, "step": step, "observe": observe, "constraints": (LEVEL, INFLOW, WEIGHT),
        "signals": SIGNALS, "actuators": {"valve": "m3/s"},
        "scenarios": {"nominal": {}, "disturbed": {"noise": 0.5}, "low": {"highest": 1.5, "noise": "uniform(0, 0.5)"}},
    }  # fmt: skip
    return Environment("Tank-v0", **{**given, **changes})
