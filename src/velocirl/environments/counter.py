"""Counter: counts its own steps, so that every transition can be verified.

The observation is the index of the next step, which pays that index for any action. A transition (o, r, o') is correct
if r = o and o' = o + 1. The episode terminates after `length` steps. A `length` beyond the limit of 20 steps makes it
truncate instead. Every policy earns length (length - 1) / 2: 45.
"""

from math import inf

from velocirl import Box, Discrete, Environment, float32, record
from velocirl.engine.canvas import BLUE, MIST


@record
class State:
    count: float32


@record
class Params:
    length: float32 = 10


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    reward = state.count
    state.count += 1
    return reward, state.count >= params.length


def observe(state, params, observation):
    observation[0] = state.count


def draw(state, params, canvas):
    canvas.view(0, params.length, 0, 1, width=320, height=40, background=MIST)
    canvas.rectangle(0, 0, state.count, 1, BLUE)


def text(state, params):
    return f"step {state.count:.0f} of {params.length:.0f}"


environment = Environment(
    "Counter-v0",
    state=State,
    params=Params,
    observation=Box(0, inf, shape=(1,)),
    action=Discrete(2),
    render_fps=4,
    max_steps=20,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    # Counts must arrive unchanged: empty presets keep generic defaults from normalizing or scaling them.
    presets={"ppo": {}, "a2c": {}, "dqn": {}, "qr-dqn": {}, "discrete-sac": {}},
)
