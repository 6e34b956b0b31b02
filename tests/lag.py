"""A plant that follows late: first order plus dead time, the yardstick of PID tuning."""

from velocirl import Box, Environment, float32, record

GAIN, LAG, DELAY = 2.0, 20.0, 5  # seconds, and steps of a second


@record
class State:
    output: float32
    commands: float32[5]  # the oldest first


@record
class Params:
    gain: float32 = GAIN
    lag: float32 = LAG


def reset(state, params, rng):
    state.output = 0.0
    for k in range(DELAY):
        state.commands[k] = 0.0


def step(state, params, action, rng):
    command = state.commands[0]
    for k in range(DELAY - 1):
        state.commands[k] = state.commands[k + 1]
    state.commands[DELAY - 1] = action[0]
    state.output += (params.gain * command - state.output) / params.lag
    return -abs(1.0 - state.output), False


def observe(state, params, observation):
    observation[0] = state.output


plant = Environment(
    "Lag-v0", state=State, params=Params, observation=Box(-100.0, 100.0, (1,)), action=Box(-10.0, 10.0, (1,)),
    max_steps=100, reset=reset, step=step, observe=observe, signals={"output": "1"}, actuators={"command": "1"},
)  # fmt: skip
