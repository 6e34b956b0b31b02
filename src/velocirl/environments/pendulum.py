"""Pendulum: swing a pendulum up and hold it there with too little torque to lift it at once (after Doya, 1996)."""

from math import cos, floor, pi, sin

import numpy as np

from velocirl import Box, Environment, float32, random, record
from velocirl.engine.canvas import BLUE, INK, MIST, RED

HIGH = np.array([1.0, 1.0, 8.0], np.float32)
FROM_MEMORY = {  # preset of SAC and TD3
    "total_steps": 20_000,
    "num_envs": 8,
    "hidden": (64, 64),
    "batch_size": 128,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "gamma": 0.98,
}


@record
class State:
    angle: float32
    angular_velocity: float32
    torque: float32


@record
class Params:
    gravity: float32 = 10.0
    mass: float32 = 1.0
    length: float32 = 1.0
    max_speed: float32 = 8.0
    time_step: float32 = 0.05
    x_init: float32 = pi  # largest angle and angular velocity at reset
    y_init: float32 = 1.0


def reset(state, params, rng):
    state.angle = random.uniform(rng, -params.x_init, params.x_init)
    state.angular_velocity = random.uniform(rng, -params.y_init, params.y_init)
    state.torque = 0.0


def step(state, params, action, rng):
    angle = wrap(state.angle)
    state.torque = action[0]
    cost = angle**2 + 0.1 * state.angular_velocity**2 + 0.001 * state.torque**2

    swing = 1.5 * params.gravity / params.length * sin(angle)
    drive = 3.0 / (params.mass * params.length**2) * state.torque
    velocity = state.angular_velocity + params.time_step * (swing + drive)
    state.angular_velocity = min(max(velocity, -params.max_speed), params.max_speed)
    state.angle = angle + params.time_step * state.angular_velocity
    return -cost, False


def wrap(angle):
    """Wrap an angle to the range from -pi to pi."""
    return angle - 2.0 * pi * floor(angle / (2.0 * pi) + 0.5)


def observe(state, params, observation):
    observation[0] = cos(state.angle)
    observation[1] = sin(state.angle)
    observation[2] = state.angular_velocity


def draw(state, params, canvas):
    reach = 1.3 * params.length
    canvas.view(-reach, reach, -reach, reach, 500, 500)
    canvas.disc(0.0, 0.0, 1.15 * params.length, MIST)
    canvas.line(0.0, 0.0, *on_circle(params.length, state.angle), 0.16, RED)
    canvas.disc(0.0, 0.0, 0.045, INK)
    if state.torque != 0.0:
        draw_torque(state.torque, canvas)


def draw_torque(torque, canvas):
    """Draw an arrow around the pivot, with a length proportional to the torque."""
    turns = [0.75 * torque * index / 12 for index in range(13)]
    inner, outer = ([on_circle(radius, turn) for turn in turns] for radius in (0.385, 0.415))
    canvas.polygon(inner + outer[::-1], BLUE)
    tip = turns[-1] + (0.25 if torque > 0.0 else -0.25)
    canvas.polygon([on_circle(0.33, turns[-1]), on_circle(0.47, turns[-1]), on_circle(0.4, tip)], BLUE)


def on_circle(radius, angle):
    """Return the point at an angle that is 0 upward and grows counterclockwise."""
    return -radius * sin(angle), radius * cos(angle)


environment = Environment(
    "Pendulum-v1",
    state=State,
    params=Params,
    observation=Box(-HIGH, HIGH),
    action=Box(-2.0, 2.0, (1,)),
    render_fps=30,
    max_steps=200,
    options=("x_init", "y_init"),
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    presets={
        "ppo": {"total_steps": 250_000, "gamma": 0.95, "entropy_coefficient": 0.0, "normalise_rewards": True},
        "sac": FROM_MEMORY,
        "td3": FROM_MEMORY,
        "iql": {"temperature": 0.5},
    },
)
