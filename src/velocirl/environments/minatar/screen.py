"""What the games of MinAtar have in common: the screen, and actions that stick."""

import numpy as np

from velocirl import Box, bool_, float32, random, record
from velocirl.engine.canvas import AMBER, BLUE, GREEN, INK, MEADOW, ORANGE, RED, SKY, STONE, TEAL, VIOLET, WHITE

SIZE = 10  # cells along a side
COLORS = {
    "blue": BLUE, "orange": ORANGE, "stone": STONE, "red": RED, "amber": AMBER, "green": GREEN, "teal": TEAL,
    "violet": VIOLET, "meadow": MEADOW, "sky": SKY, "white": WHITE,
}  # fmt: skip
# What PPO learns the games by; the steps are each game's own.
PPO = {"num_envs": 64, "horizon": 128, "minibatch_size": 1024, "learning_rate": 0.0025, "activation": "relu"}
# The same for games that take more: minutes on a GPU.
LARGE_PPO = {
    "num_envs": 1024, "horizon": 128, "minibatch_size": 8192, "learning_rate": 0.001, "activation": "relu",
    "hidden": (256, 256),
}  # fmt: skip


@record
class Params:
    sticky: float32 = 0.1  # how likely the last action is taken again, whatever the player wants


@record
class RampingParams:
    sticky: float32 = 0.1
    ramping: bool_ = True  # whether the game becomes faster with time


def planes(count: int) -> Box:
    """The space of screens with so many planes."""
    return Box(0, 1, (SIZE, SIZE, count), np.uint8)


def take(state, params, action, rng):
    """The action that is really taken: what the player wants or, sometimes, the last one again."""
    if random.uniform(rng) >= params.sticky:
        state.last_action = action
    return state.last_action


def moved(place, distance, lowest, highest):
    return min(max(place + distance, lowest), highest)


def toward(action, back, forth):
    """Which way an action goes: -1, 1, or 0 where it is neither."""
    return 1 if action == forth else -1 if action == back else 0


def painter(observe, *colors):
    """`draw` for a game: a cell in the colour of its last plane that has something there."""

    def draw(state, params, canvas):
        screen = np.zeros((SIZE, SIZE, len(colors)), np.uint8)
        observe(state, params, screen)
        canvas.view(0, SIZE, SIZE, 0, width=32 * SIZE, height=32 * SIZE, background=INK)
        for plane, name in enumerate(colors):
            for row, column in np.argwhere(screen[:, :, plane]).tolist():
                canvas.rectangle(column + 0.05, row + 0.95, column + 0.95, row + 0.05, COLORS[name])

    return draw


def writer(observe, letters):
    """`text` for a game: a letter for the last plane that has something there."""

    def text(state, params):
        screen = np.zeros((SIZE, SIZE, len(letters)), np.uint8)
        observe(state, params, screen)
        lines = [["."] * SIZE for _ in range(SIZE)]
        for plane, letter in enumerate(letters):
            for row, column in np.argwhere(screen[:, :, plane]).tolist():
                lines[row][column] = letter
        return "\n".join("".join(line) for line in lines)

    return text
