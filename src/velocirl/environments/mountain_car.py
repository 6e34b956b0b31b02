"""Mountain car: rock an underpowered car out of a valley by pushing left, not at all, or right (Moore, 1990)."""

from math import atan, cos, sin

import numpy as np

from velocirl import Box, Discrete, Environment, float32, random, record
from velocirl.engine.canvas import AMBER, BLUE, GREEN, INK, MEADOW, MIST, RED, SKY, SLATE


@record
class State:
    position: float32
    velocity: float32


@record
class Params:
    gravity: float32 = 0.0025
    push: float32 = 0.001
    max_speed: float32 = 0.07
    left_end: float32 = -1.2
    right_end: float32 = 0.6
    goal_position: float32 = 0.5
    goal_velocity: float32 = 0.0
    low: float32 = -0.6  # of the position at reset
    high: float32 = -0.4


def reset(state, params, rng):
    state.position = random.uniform(rng, params.low, params.high)
    state.velocity = 0.0


def step(state, params, action, rng):
    roll(state, params, params.push * (action - 1))
    return -1.0, arrived(state, params)


def roll(state, params, force):
    """Move the car by one time step; it stops at the left end."""
    velocity = state.velocity + force - params.gravity * cos(3.0 * state.position)
    velocity = min(max(velocity, -params.max_speed), params.max_speed)
    state.position = min(max(state.position + velocity, params.left_end), params.right_end)
    state.velocity = max(velocity, 0.0) if state.position == params.left_end else velocity


def arrived(state, params):
    return state.position >= params.goal_position and state.velocity >= params.goal_velocity


def observe(state, params, observation):
    observation[0] = state.position
    observation[1] = state.velocity


def draw(state, params, canvas):
    canvas.view(-1.2, 0.6, 0.0, 1.2, background=SKY)
    canvas.disc(-0.35, 0.95, 0.08, AMBER)
    spots = [-1.2 + 0.03 * index for index in range(61)]
    canvas.polygon([(-1.2, 0.0), *[(x, height(x) + 0.008) for x in spots], (0.6, 0.0)], GREEN)
    canvas.polygon([(-1.2, 0.0), *[(x, height(x) - 0.025) for x in spots], (0.6, 0.0)], MEADOW)

    flag, foot = params.goal_position, height(params.goal_position)
    canvas.line(flag, foot, flag, foot + 0.18, 0.008, INK)
    canvas.polygon([(flag, foot + 0.18), (flag, foot + 0.11), (flag - 0.1, foot + 0.145)], RED)

    slope = atan(1.35 * cos(3.0 * state.position))
    x, y = state.position - 0.03 * sin(slope), height(state.position) + 0.03 * cos(slope)

    def on_car(along, above):
        return x + along * cos(slope) - above * sin(slope), y + along * sin(slope) + above * cos(slope)

    canvas.polygon([on_car(-0.05, 0.03), on_car(0.055, 0.03), on_car(0.03, 0.085), on_car(-0.035, 0.085)], SLATE)
    canvas.line(*on_car(-0.065, 0.022), *on_car(0.065, 0.022), 0.04, BLUE)
    for wheel in (-0.045, 0.045):
        canvas.disc(*on_car(wheel, 0.0), 0.03, INK)
        canvas.disc(*on_car(wheel, 0.0), 0.012, MIST)


def height(position):
    return 0.45 * sin(3.0 * position) + 0.55


environment = Environment(
    "MountainCar-v0",
    state=State,
    params=Params,
    observation=Box(np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)),
    action=Discrete(3),
    action_meanings=("left", "stay", "right"),
    render_fps=30,
    max_steps=200,
    options=("low", "high"),
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    presets={
        "ppo": {
            "total_steps": 300_000,
            "learning_rate": 0.005,
            "normalise_observations": True,
            "normalise_rewards": True,
        },
        "dqn": {
            "total_steps": 120_000,
            "buffer_size": 10_000,
            "learning_rate": 0.004,
            "gamma": 0.98,
            "hidden": (128, 128),
            "initialiser": "he_uniform",
            "double": False,
            "dueling": False,
            "train_every": 16,
            "gradient_steps": 8,
            "batch_size": 128,
            "n_step": 3,
            "target_every": 300,
            "exploration_fraction": 0.2,
            "exploration_final": 0.07,
        },
    },
)
