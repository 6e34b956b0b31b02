"""Continuous mountain car: leave the valley with as little force as possible (Moore, 1990, with a continuous force)."""

import numpy as np

from velocirl import Box, Environment, float32, record
from velocirl.environments.mountain_car import State, arrived, draw, observe, reset, roll

FROM_MEMORY = {  # preset of SAC and TD3; only correlated noise leaves the valley by chance
    "total_steps": 50_000,
    "num_envs": 8,
    "hidden": (64, 64),
    "batch_size": 128,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "learning_starts": 2000,
    "train_every": 2,
    "gamma": 0.999,
    "noise": 0.5,
    "noise_correlation": 0.95,
}


@record
class Params:
    gravity: float32 = 0.0025
    power: float32 = 0.0015
    max_speed: float32 = 0.07
    left_end: float32 = -1.2
    right_end: float32 = 0.6
    goal_position: float32 = 0.45
    goal_velocity: float32 = 0.0
    low: float32 = -0.6  # of the position at reset
    high: float32 = -0.4


def step(state, params, action, rng):
    roll(state, params, params.power * action[0])
    terminated = arrived(state, params)
    prize = 100.0 if terminated else 0.0
    return prize - 0.1 * action[0] ** 2, terminated


environment = Environment(
    "MountainCarContinuous-v0",
    state=State,
    params=Params,
    observation=Box(np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)),
    action=Box(-1.0, 1.0, (1,)),
    render_fps=30,
    max_steps=999,
    options=("low", "high"),
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    presets={
        "ppo": {
            "total_steps": 100_000,
            "learning_rate": 0.005,
            "hidden": (64,),
            "gamma": 0.999,
            "normalise_observations": True,
            "normalise_rewards": True,
        },
        "sac": FROM_MEMORY,
        "td3": FROM_MEMORY,
    },
)
