"""Catch as an image, for visual policies: the game of Catch-v0, with each cell drawn as 2x2 gray pixels.

The ball is white, the paddle half as bright, the board black. If both are in one cell, the ball is visible. A perfect
policy earns 1.
"""

import numpy as np

from velocirl import Box, Discrete, Environment
from velocirl.environments.catch import HEIGHT, WIDTH, State, draw, reset, text
from velocirl.environments.catch import step as fall

CELL = 2  # pixels along a side
BALL, PADDLE = 255, 128


def step(state, params, action, rng):
    return fall(state, params, action, rng)


def observe(state, params, observation):
    for row in range(CELL * HEIGHT):
        for column in range(CELL * WIDTH):
            observation[0, row, column] = 0
    paint(observation, HEIGHT - 1, state.paddle, PADDLE)
    paint(observation, state.ball_row, state.ball_column, BALL)


def paint(observation, row, column, brightness):
    """Fill a cell of the board."""
    for down in range(CELL):
        for across in range(CELL):
            observation[0, CELL * row + down, CELL * column + across] = brightness


environment = Environment(
    "CatchPixels-v0",
    state=State,
    observation=Box(0, 255, shape=(1, CELL * HEIGHT, CELL * WIDTH), dtype=np.uint8),
    action=Discrete(3),
    action_meanings=("left", "stay", "right"),
    render_fps=4,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 100_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {
            "total_steps": 50_000,
            "learning_rate": 0.002,
            "hidden": (128, 128),
            "train_every": 2,
            "n_step": 3,
            "target_every": 250,
            "exploration_fraction": 0.3,
        },
    },
)
