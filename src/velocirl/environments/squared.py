"""Squared: from the center of a square to one of the targets on its border (after PufferLib's Squared).

Some cells of the border, sampled for each episode, are targets. The agent moves like a chess king, and the border ends
the episode: 1 on a target, -1 elsewhere. The map must be read, it cannot be memorized. A perfect policy earns 1, in 3
steps.
"""

from velocirl import Box, Discrete, Environment, between, int32, int64, random, record
from velocirl.engine.canvas import GREEN, MIST, PAPER, RED, WHITE

RADIUS = 3
SIDE = 2 * RADIUS + 1
BORDER_CELLS = 8 * RADIUS


@record
class State:
    row: int32 = between(1, SIDE - 2)  # the border ends the episode
    column: int32 = between(1, SIDE - 2)
    targets: int64 = between(0, 2 ** (SIDE * SIDE) - 1)  # bit SIDE * row + column for each cell


@record
class Params:
    num_targets: int32 = between(0, BORDER_CELLS, default=4)


def on_border(row, column):
    return row == 0 or row == SIDE - 1 or column == 0 or column == SIDE - 1


def border_cell(number):
    """Return the cell (SIDE * row + column) of a number below BORDER_CELLS, counting row by row."""
    if number < SIDE:
        return number
    if number >= BORDER_CELLS - SIDE:
        return SIDE * SIDE - BORDER_CELLS + number
    return SIDE * ((number - SIDE) // 2 + 1) + (number - SIDE) % 2 * (SIDE - 1)


def is_target(state, cell):
    return state.targets >> cell & 1 == 1


def reset(state, params, rng):
    state.row = RADIUS
    state.column = RADIUS
    state.targets = 0
    for last in range(BORDER_CELLS - params.num_targets, BORDER_CELLS):
        # Floyd's sampling without replacement: a number that was sampled before is replaced by the last one.
        cell = border_cell(random.integer(rng, 0, last + 1))
        state.targets |= 1 << (border_cell(last) if is_target(state, cell) else cell)


def step(state, params, action, rng):
    neighbour = action + (action >= 4)  # index in the 3 x 3 neighborhood, row by row, without the center
    state.row += neighbour // 3 - 1
    state.column += neighbour % 3 - 1
    if not on_border(state.row, state.column):
        return 0.0, False
    return 1.0 if is_target(state, SIDE * state.row + state.column) else -1.0, True


def observe(state, params, observation):
    for cell in range(SIDE * SIDE):
        observation[cell] = 1.0 if is_target(state, cell) else 0.0
    observation[SIDE * state.row + state.column] = -1.0


def draw(state, params, canvas):
    canvas.view(0, SIDE, SIDE, 0, width=336, height=336, background=MIST)
    for row in range(SIDE):
        for column in range(SIDE):
            color = GREEN if is_target(state, SIDE * row + column) else WHITE if on_border(row, column) else PAPER
            canvas.rectangle(column + 0.02, row + 0.98, column + 0.98, row + 0.02, color)
    canvas.disc(state.column + 0.5, state.row + 0.5, 0.3, RED)


def text(state, params):
    lines = [["x" if is_target(state, SIDE * row + column) else "." for column in range(SIDE)] for row in range(SIDE)]
    lines[state.row][state.column] = "@"
    return "\n".join("".join(line) for line in lines)


environment = Environment(
    "Squared-v0",
    state=State,
    params=Params,
    observation=Box(-1, 1, shape=(SIDE * SIDE,)),  # 1 target, -1 agent, 0 neither
    action=Discrete(8),
    action_meanings=("up left", "up", "up right", "left", "right", "down left", "down", "down right"),
    render_fps=4,
    max_steps=24,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 300_000, "learning_rate": 0.005, "hidden": (128,), "activation": "relu"},
        "dqn": {
            "total_steps": 300_000,
            "learning_rate": 0.004,
            "gamma": 0.97,
            "target_every": 250,
            "exploration_fraction": 0.3,
        },
    },
)
