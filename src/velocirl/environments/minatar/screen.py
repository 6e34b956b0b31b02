"""Shared parts of the MinAtar games: the screen, and sticky actions."""

import numpy as np

from velocirl import Box, bool_, float32, random, record
from velocirl.engine.canvas import AMBER, BLUE, GREEN, INK, MEADOW, ORANGE, RED, SKY, STONE, TEAL, VIOLET, WHITE

SIZE = 10  # cells along a side
COLORS = {
    "blue": BLUE, "orange": ORANGE, "stone": STONE, "red": RED, "amber": AMBER, "green": GREEN, "teal": TEAL,
    "violet": VIOLET, "meadow": MEADOW, "sky": SKY, "white": WHITE,
}  # fmt: skip
# PPO's preset for the games, without the number of steps.
PPO = {"num_envs": 64, "horizon": 128, "minibatch_size": 1024, "learning_rate": 0.0025, "activation": "relu"}
# PPO's preset for games that take longer: minutes on a GPU.
LARGE_PPO = {
    "num_envs": 1024, "horizon": 128, "minibatch_size": 8192, "learning_rate": 0.001, "activation": "relu",
    "hidden": (256, 256),
}  # fmt: skip


@record
class Params:
    sticky: float32 = 0.1  # probability that the last action is repeated


@record
class RampingParams:
    sticky: float32 = 0.1
    ramping: bool_ = True  # whether the game becomes faster over time


def planes(count: int) -> Box:
    """Return the space of screens with `count` planes."""
    return Box(0, 1, (SIZE, SIZE, count), np.uint8)


def take(state, params, action, rng):
    """Return the executed action: the player's or, with probability `sticky`, the last one."""
    if random.uniform(rng) >= params.sticky:
        state.last_action = action
    return state.last_action


def moved(place, distance, lowest, highest):
    return min(max(place + distance, lowest), highest)


def toward(action, back, forth):
    """Return an action's direction: -1, 1, or 0 if it is neither."""
    return 1 if action == forth else -1 if action == back else 0


def painter(observe, *colors):
    """Return `draw` for a game: each cell has the color of its last occupied plane."""

    def draw(state, params, canvas):
        screen = np.zeros((SIZE, SIZE, len(colors)), np.uint8)
        observe(state, params, screen)
        canvas.view(0, SIZE, SIZE, 0, width=32 * SIZE, height=32 * SIZE, background=INK)
        for plane, name in enumerate(colors):
            for row, column in np.argwhere(screen[:, :, plane]).tolist():
                canvas.rectangle(column + 0.05, row + 0.95, column + 0.95, row + 0.05, COLORS[name])

    return draw


def writer(observe, letters):
    """Return `text` for a game: each cell has the letter of its last occupied plane."""

    def text(state, params):
        screen = np.zeros((SIZE, SIZE, len(letters)), np.uint8)
        observe(state, params, screen)
        lines = [["."] * SIZE for _ in range(SIZE)]
        for plane, letter in enumerate(letters):
            for row, column in np.argwhere(screen[:, :, plane]).tolist():
                lines[row][column] = letter
        return "\n".join("".join(line) for line in lines)

    return text
