"""Rules of the platform game: start of an episode, rewards of a frame, and its end.

A player who finishes earns about 16.7: 11.7 for progress, 5 for the flag. A random player covers 27 tiles.
"""

import numpy as np

from velocirl import Box, Discrete, Environment
from velocirl.environments.platformer.level import (
    COLUMNS,
    FLAG,
    GROUND_TOP,
    HEIGHT,
    PIXEL,
    TILE,
    WIDTH,
    Params,
    State,
    build,
    safe_column,
)
from velocirl.environments.platformer.motion import ACTIONS, move_enemies, move_player
from velocirl.environments.platformer.pictures import draw, text
from velocirl.environments.platformer.screen import SIZE, observe_row


def reset(state, params, rng):
    build(state, params.difficulty, rng)
    state.x = safe_column(state, int(params.start * COLUMNS)) * TILE
    state.y = GROUND_TOP
    state.velocity_x = 0
    state.velocity_y = 0
    state.held = False
    state.begin = state.x
    state.farthest = state.x
    state.distance = 0.0
    state.flag = False


def step(state, params, action, rng):
    move_player(state, action)
    hurt = move_enemies(state)
    state.flag = state.x + WIDTH > FLAG * TILE
    dead = not state.flag and (hurt or state.y <= -HEIGHT)
    reward = advance(state, params)
    reward += params.flag_reward if state.flag else params.death_reward if dead else 0.0
    return reward, state.flag or dead


def advance(state, params):
    """Update the player's progress; returns its reward."""
    progress = max(state.x - state.farthest, 0)
    state.farthest += progress
    state.distance = (state.farthest - state.begin) / TILE
    paid = min(progress, params.progress_cap * PIXEL) * params.progress_reward / TILE
    return paid if progress > 0 else params.idle_reward


environment = Environment(
    "Platformer-v0",
    state=State,
    params=Params,
    observation=Box(0, 255, (SIZE, SIZE), np.uint8),
    action=Discrete(ACTIONS),
    action_meanings=("stay", "right", "right jump", "right run", "right jump run", "jump", "left"),
    render_fps=15,
    max_steps=600,
    skip=4,
    stack=4,
    report=("distance", "flag"),
    options=("difficulty", "start"),
    reset=reset,
    step=step,
    observe_row=observe_row,
    draw=draw,
    text=text,
    presets={
        "ppo": {
            "total_steps": 500_000,
            "num_envs": 64,
            "horizon": 32,
            "minibatch_size": 256,
            "learning_rate": 0.001,
            "network": "cnn(16x8s4, 32x4s2) mlp(64)",
        },
    },
)
