"""A heated tank that must neither run over nor overheat, for the tests of trajectories; plain Python will do for it."""

from math import sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, float32, random, record
from velocirl.controllers import PID, Loop

INFLOW, HEATER = 0.1, 4e5  # m3/s and W, fully open
HEAT_CAPACITY, FEED_TEMPERATURE = 4.2e6, 290.0  # J/(m3 K), K


@record
class State:
    level: float32
    temperature: float32


@record
class Params:
    time_step: float32 = 2.0
    setpoint: float32 = 1.0
    max_level: float32 = 1.6
    outlet: float32 = 0.05
    noise: float32 = 0.0


def reset(state, params, rng):
    state.level = random.uniform(rng, 0.8, 1.2)
    state.temperature = 320.0


def step(state, params, action, rng):
    inflow = min(max(action[0], 0.0), INFLOW) + params.noise * random.normal(rng)
    heater = min(max(action[1], 0.0), HEATER)
    heating = heater / HEAT_CAPACITY - inflow * (state.temperature - FEED_TEMPERATURE)
    state.temperature += params.time_step * heating / state.level
    state.level += params.time_step * (inflow - params.outlet * sqrt(state.level))
    state.level = max(state.level, 0.05)
    return 1.0 - abs(state.level - params.setpoint), False


def observe(state, params, observation):
    observation[0] = state.level
    observation[1] = state.temperature
    observation[2] = params.setpoint


def heat(state, params):
    return state.temperature


def make_tank(name="Tank-v0", **given):
    """The tank; what is given replaces what it has."""
    defaults = {
        "state": State,
        "params": Params,
        "observation": Box(0.0, 1000.0, (3,)),
        "action": Box(np.zeros(2, np.float32), np.array([INFLOW, HEATER], np.float32)),
        "max_steps": 60,
        "reset": reset,
        "step": step,
        "observe": observe,
        "signals": {"level": "m", "temperature": "K", "setpoint": "m"},
        "actuators": {"inflow": "m3/s", "heater": "W"},
        "constraints": (
            Constraint("level", "level", low=0.4, high="max_level", unit="m", penalty=2.0),
            Constraint("overheating", heat, high=330.0, unit="K", critical=True),
        ),
        "scenarios": {"nominal": {}, "disturbed": {"noise": 0.02}, "narrow": {"max_level": 1.05}},
        "controller": PID(
            Loop("level", "inflow", "setpoint", gain=0.1, integral_time=60.0, bias=0.05),
            time_step=2.0,
            bias={"heater": 3e5},
        ),
    }
    return Environment(name, **{**defaults, **given})


def open_fully(_):
    """A policy that lets the tank run over."""
    return np.array([INFLOW, 0.0], np.float32)


def heat_fully(_):
    """A policy that overheats it."""
    return np.array([0.0, HEATER], np.float32)
