"""FrozenLake: cross a frozen lake without falling into a hole, on slippery ice (Gymnasium's toy text).

Reaching the goal pays 1, everything else 0. On slippery ice the walker moves in the intended direction, or to either
side of it, with probability 1/3 each. A perfect policy earns 0.74 in 100 steps on the 4x4 lake and 0.91 in 200 steps on
the 8x8 lake; without slipping 1.
"""

from velocirl import Discrete, Environment, between, bool_, int32, random, record, uint8
from velocirl.engine.canvas import BLUE, GREEN, RED, SKY, SLATE, WHITE

HOLE, GOAL = ord("H"), ord("G")
LEFT, DOWN, RIGHT, UP = 0, 1, 2, 3


def tiles(*lines: str) -> tuple[tuple[int, ...], ...]:
    """Return a map from lines of letters: (S)tart at the top left, (F)rozen, (H)ole, (G)oal."""
    return tuple(tuple(map(ord, line)) for line in lines)


@record
class State:
    row: int32 = between(0, 3)
    column: int32 = between(0, 3)


@record
class LargeState:
    row: int32 = between(0, 7)
    column: int32 = between(0, 7)


@record
class Params:
    is_slippery: bool_ = True
    tiles: uint8[4, 4] = tiles("SFFF", "FHFH", "FFFH", "HFFG")


@record
class LargeParams:
    is_slippery: bool_ = True
    tiles: uint8[8, 8] = tiles(
        "SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"
    )


def reset(state, params, rng):
    state.row = 0
    state.column = 0


def step(state, params, action, rng):
    direction = (action + random.integer(rng, -1, 2)) % 4 if params.is_slippery else action
    last = len(params.tiles) - 1
    state.row = min(max(state.row + (direction == DOWN) - (direction == UP), 0), last)
    state.column = min(max(state.column + (direction == RIGHT) - (direction == LEFT), 0), last)

    tile = params.tiles[state.row, state.column]
    return 1.0 if tile == GOAL else 0.0, tile in (GOAL, HOLE)


def observe(state, params, observation):
    observation[0] = len(params.tiles) * state.row + state.column


def draw(state, params, canvas):
    side = len(params.tiles)
    canvas.view(0, side, side, 0, width=64 * side, height=64 * side, background=WHITE)
    for row, line in enumerate(params.tiles):
        for column, tile in enumerate(line):
            canvas.rectangle(column + 0.02, row + 0.98, column + 0.98, row + 0.02, SKY)
            if tile == HOLE:
                canvas.disc(column + 0.5, row + 0.5, 0.38, BLUE)
            if tile == GOAL:
                x, y = column + 0.25, row + 0.15
                canvas.polygon([(x, y), (x + 0.55, y + 0.18), (x, y + 0.36)], GREEN)
                canvas.line(x, y, x, y + 0.7, 0.06, SLATE)
    canvas.disc(state.column + 0.5, state.row + 0.5, 0.25, RED)


def text(state, params):
    lines = [[chr(tile) for tile in line] for line in params.tiles]
    lines[state.row][state.column] = "@"
    return "\n".join("".join(line) for line in lines)


environment = Environment(
    "FrozenLake-v1",
    state=State,
    params=Params,
    observation=Discrete(16),
    action=Discrete(4),
    action_meanings=("left", "down", "right", "up"),
    render_fps=4,
    max_steps=100,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 200_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {
            "total_steps": 100_000,
            "learning_rate": 0.002,
            "hidden": (64,),
            "target_every": 250,
            "exploration_fraction": 0.5,
        },
        "tabular": {"total_steps": 300_000, "learning_rate_schedule": "linear"},
    },
)

large_environment = Environment(
    "FrozenLake8x8-v1",
    state=LargeState,
    params=LargeParams,
    observation=Discrete(64),
    action=Discrete(4),
    action_meanings=("left", "down", "right", "up"),
    render_fps=4,
    max_steps=200,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {
            "total_steps": 500_000,
            "num_envs": 64,
            "learning_rate": 0.005,
            "hidden": (64,),
            "entropy_coefficient": 0.07,
        },
        "dqn": {
            "total_steps": 200_000,
            "learning_rate": 0.0005,
            "hidden": (128, 128),
            "train_every": 2,
            "n_step": 3,
            "target_every": 125,
            "exploration_fraction": 0.5,
        },
        "tabular": {"total_steps": 2_000_000, "learning_rate_schedule": "linear", "gamma": 0.999},
    },
)
