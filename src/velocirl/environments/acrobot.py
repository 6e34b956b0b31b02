"""Acrobot: swing the tip of a two-link arm above a line with a motor at the elbow only (Sutton, 1996)."""

from math import cos, floor, pi, sin

import numpy as np

from velocirl import Box, Discrete, Environment, float32, random, record
from velocirl.engine.canvas import AMBER, GREEN, INK, MIST, TEAL, WHITE

HIGH = np.array([1.0, 1.0, 1.0, 1.0, 4.0 * pi, 9.0 * pi], np.float32)


@record
class State:
    shoulder: float32  # angle of the upper link, 0 when hanging straight down
    elbow: float32  # angle between the links, 0 when the arm is straight
    shoulder_velocity: float32
    elbow_velocity: float32


@record
class Params:
    gravity: float32 = 9.8
    upper_mass: float32 = 1.0
    lower_mass: float32 = 1.0
    upper_length: float32 = 1.0
    lower_length: float32 = 1.0
    upper_centre: float32 = 0.5  # from the joint to the center of mass
    lower_centre: float32 = 0.5
    inertia: float32 = 1.0  # of each link
    torque: float32 = 1.0
    max_shoulder_velocity: float32 = 4.0 * pi
    max_elbow_velocity: float32 = 9.0 * pi
    goal_height: float32 = 1.0
    time_step: float32 = 0.2
    low: float32 = -0.1  # of each field at reset
    high: float32 = 0.1


def reset(state, params, rng):
    state.shoulder = random.uniform(rng, params.low, params.high)
    state.elbow = random.uniform(rng, params.low, params.high)
    state.shoulder_velocity = random.uniform(rng, params.low, params.high)
    state.elbow_velocity = random.uniform(rng, params.low, params.high)


def step(state, params, action, rng):
    torque = params.torque * (action - 1)
    time = params.time_step

    # fourth-order Runge-Kutta with constant torque
    start = (state.shoulder, state.elbow, state.shoulder_velocity, state.elbow_velocity)
    slope1 = slope(params, start, torque)
    slope2 = slope(params, ahead(start, slope1, time / 2.0), torque)
    slope3 = slope(params, ahead(start, slope2, time / 2.0), torque)
    slope4 = slope(params, ahead(start, slope3, time), torque)
    end = ahead(ahead(start, slope1, time / 6.0), slope2, time / 3.0)
    end = ahead(ahead(end, slope3, time / 3.0), slope4, time / 6.0)

    state.shoulder = wrap(end[0])
    state.elbow = wrap(end[1])
    state.shoulder_velocity = min(max(end[2], -params.max_shoulder_velocity), params.max_shoulder_velocity)
    state.elbow_velocity = min(max(end[3], -params.max_elbow_velocity), params.max_elbow_velocity)

    height = -params.upper_length * cos(state.shoulder) - params.lower_length * cos(state.shoulder + state.elbow)
    terminated = height > params.goal_height
    return 0.0 if terminated else -1.0, terminated


def slope(params, point, torque):
    """Return the derivatives of the angles and velocities: the equations of motion in Sutton and Barto's book."""
    shoulder, elbow, shoulder_velocity, elbow_velocity = point
    lever = params.lower_mass * params.upper_length * params.lower_centre
    lower_inertia = params.lower_mass * params.lower_centre**2 + params.inertia
    upper_inertia = (
        params.upper_mass * params.upper_centre**2 + params.lower_mass * params.upper_length**2 + params.inertia
    )

    d1 = upper_inertia + lower_inertia + 2.0 * lever * cos(elbow)
    d2 = lower_inertia + lever * cos(elbow)
    phi2 = params.lower_mass * params.lower_centre * params.gravity * sin(shoulder + elbow)
    phi1 = (
        phi2
        - lever * elbow_velocity * (elbow_velocity + 2.0 * shoulder_velocity) * sin(elbow)
        + (params.upper_mass * params.upper_centre + params.lower_mass * params.upper_length)
        * params.gravity
        * sin(shoulder)
    )
    elbow_acceleration = (torque + d2 / d1 * phi1 - lever * shoulder_velocity**2 * sin(elbow) - phi2) / (
        lower_inertia - d2**2 / d1
    )
    shoulder_acceleration = -(d2 * elbow_acceleration + phi1) / d1
    return shoulder_velocity, elbow_velocity, shoulder_acceleration, elbow_acceleration


def ahead(point, slope, time):
    """Return the point reached after `time` along a slope."""
    return (
        point[0] + time * slope[0],
        point[1] + time * slope[1],
        point[2] + time * slope[2],
        point[3] + time * slope[3],
    )


def wrap(angle):
    """Wrap an angle to the range from -pi to pi."""
    return angle - 2.0 * pi * floor(angle / (2.0 * pi) + 0.5)


def observe(state, params, observation):
    observation[0] = cos(state.shoulder)
    observation[1] = sin(state.shoulder)
    observation[2] = cos(state.elbow)
    observation[3] = sin(state.elbow)
    observation[4] = state.shoulder_velocity
    observation[5] = state.elbow_velocity


def draw(state, params, canvas):
    reach = 1.15 * (params.upper_length + params.lower_length)
    canvas.view(-reach, reach, -reach, reach, 500, 500)
    canvas.rectangle(-reach, params.goal_height, reach, reach, MIST)
    canvas.line(-reach, params.goal_height, reach, params.goal_height, 0.03, GREEN)

    lower = state.shoulder + state.elbow
    x, y = params.upper_length * sin(state.shoulder), -params.upper_length * cos(state.shoulder)
    tip_x, tip_y = x + params.lower_length * sin(lower), y - params.lower_length * cos(lower)
    canvas.line(0.0, 0.0, x, y, 0.2, TEAL)
    canvas.line(x, y, tip_x, tip_y, 0.16, AMBER)
    canvas.disc(0.0, 0.0, 0.06, INK)
    canvas.disc(x, y, 0.06, INK)
    canvas.disc(tip_x, tip_y, 0.05, GREEN if tip_y > params.goal_height else WHITE)


environment = Environment(
    "Acrobot-v1",
    state=State,
    params=Params,
    observation=Box(-HIGH, HIGH),
    action=Discrete(3),
    action_meanings=("left", "stay", "right"),
    render_fps=15,
    max_steps=500,
    options=("low", "high"),
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    presets={
        "ppo": {"total_steps": 100_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {
            "total_steps": 100_000,
            "learning_rate_schedule": "linear",
            "train_every": 2,
            "batch_size": 128,
            "n_step": 3,
            "target_every": 1,
            "tau": 0.005,
            "exploration_fraction": 0.3,
        },
    },
)
