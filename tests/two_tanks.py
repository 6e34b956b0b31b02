"""Two tanks in series behind a pump with lag, delay and a curve from a table: a plant that ships with nobody."""

from math import sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, float32, int32, random, record
from velocirl.controllers import PID, Loop

CURVE = np.array([0.0, 0.004, 0.018, 0.041, 0.062, 0.075], np.float32)  # m3/s at pump speeds 0, 0.2, ..., 1
DELAY = 3  # steps of the pipe between the tanks
AREA = (1.2, 0.8)  # m2


@record
class State:
    upper: float32
    lower: float32
    pump: float32
    valve: float32
    demand: float32
    pipe: float32[DELAY]
    next: int32


@record
class Params:
    time_step: float32 = 5.0
    noise: float32 = 0.002


def pumped(speed):
    """Return the flow at a pump speed, between the points of the curve."""
    place = min(max(speed, 0.0), 1.0) * 5.0
    low = min(int(place), 4)
    return CURVE[low] + (place - low) * (CURVE[low + 1] - CURVE[low])


def reset(state, params, rng):
    state.upper = random.uniform(rng, 0.8, 1.2)
    state.lower = random.uniform(rng, 0.8, 1.2)
    state.pump = 0.6
    state.valve = 0.5
    state.demand = random.uniform(rng, 0.035, 0.045)
    state.next = 0
    for k in range(DELAY):
        state.pipe[k] = 0.04


def step(state, params, action, rng):
    state.pump += 0.4 * (action[0] - state.pump)
    state.valve += 0.6 * (action[1] - state.valve)
    state.demand += 0.05 * (0.04 - state.demand) + params.noise * random.normal(rng)
    state.demand = min(max(state.demand, 0.02), 0.06)
    arriving = state.pipe[state.next]
    passing = 0.08 * state.valve * sqrt(max(state.upper, 0.0))
    state.pipe[state.next] = passing
    state.next = (state.next + 1) % DELAY
    state.upper = max(state.upper + params.time_step / AREA[0] * (pumped(state.pump) - passing), 0.0)
    state.lower = max(state.lower + params.time_step / AREA[1] * (arriving - state.demand), 0.0)
    return 1.0 - abs(state.lower - 1.0) - 0.2 * state.pump, False


def observe(state, params, observation):
    observation[0] = state.upper
    observation[1] = state.lower
    observation[2] = state.pump
    observation[3] = state.valve
    observation[4] = state.demand
    observation[5] = state.pipe[state.next]


def make_two_tanks(name="TwoTanks-v0"):
    """Return the plant; overflow of a tank and a dry pump stop it."""
    return Environment(
        name,
        state=State,
        params=Params,
        observation=Box(np.zeros(6, np.float32), np.array([3, 3, 1, 1, 0.1, 0.1], np.float32)),
        action=Box(0.0, 1.0, (2,)),
        max_steps=200,
        reset=reset,
        step=step,
        observe=observe,
        signals={"upper": "m", "lower": "m", "pump": "1", "valve": "1", "demand": "m3/s", "arriving": "m3/s"},
        actuators={"pump": "1", "valve": "1"},
        constraints=(
            Constraint("band", "lower", low=0.6, high=1.4, unit="m", penalty=0.5),
            Constraint("overflow", "lower", high=2.0, unit="m", penalty=10.0, critical=True),
            Constraint("upper_level", "upper", low=0.2, high=2.0, unit="m", penalty=10.0, critical=True),
        ),
        controller=PID(
            Loop("upper", "pump", 1.0, gain=1.0, integral_time=200.0, bias=0.6),
            Loop("lower", "valve", 1.0, gain=0.5, integral_time=300.0, bias=0.5),
            time_step=5.0,
        ),
    )
