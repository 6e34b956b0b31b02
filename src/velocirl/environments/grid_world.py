"""GridWorld: walk through a small room with walls to the goal, each step costs (Sutton and Barto, 2018, chapter 3).

Each episode starts on a uniformly sampled free cell, so that a table visits every state. A move into a wall or out of
the room leaves the agent in place. A perfect policy needs 5.33 steps and earns 0.947 on average.
"""

from velocirl import Discrete, Environment, between, float32, int32, random, record
from velocirl.engine.canvas import GREEN, MIST, PAPER, RED, SLATE

ROOM = (
    ".....",
    ".##..",
    ".#...",
    "...#.",
    ".#.#G",
)
SIDE = 5
WALLS = sum(1 << cell for cell, tile in enumerate("".join(ROOM)) if tile == "#")  # one bit per cell
GOAL = "".join(ROOM).index("G")
UP, RIGHT, DOWN, LEFT = 0, 1, 2, 3


@record
class State:
    row: int32 = between(0, SIDE - 1)
    column: int32 = between(0, SIDE - 1)


@record
class Params:
    step_cost: float32 = 0.01
    goal_reward: float32 = 1.0


def reset(state, params, rng):
    cell = random.integer(rng, 0, SIDE * SIDE)
    while WALLS >> cell & 1 or cell == GOAL:
        cell = random.integer(rng, 0, SIDE * SIDE)
    state.row = cell // SIDE
    state.column = cell % SIDE


def step(state, params, action, rng):
    row = min(max(state.row + (action == DOWN) - (action == UP), 0), SIDE - 1)
    column = min(max(state.column + (action == RIGHT) - (action == LEFT), 0), SIDE - 1)
    cell = SIDE * row + column
    free = WALLS >> cell & 1 == 0
    state.row = row if free else state.row
    state.column = column if free else state.column
    return (params.goal_reward if cell == GOAL else 0.0) - params.step_cost, cell == GOAL


def observe(state, params, observation):
    observation[0] = SIDE * state.row + state.column


def draw(state, params, canvas):
    canvas.view(0, SIDE, SIDE, 0, width=320, height=320, background=MIST)
    for row, line in enumerate(ROOM):
        for column, tile in enumerate(line):
            color = {"#": SLATE, "G": GREEN}.get(tile, PAPER)
            canvas.rectangle(column + 0.02, row + 0.98, column + 0.98, row + 0.02, color)
    canvas.disc(state.column + 0.5, state.row + 0.5, 0.3, RED)


def text(state, params):
    lines = [list(line) for line in ROOM]
    lines[state.row][state.column] = "@"
    return "\n".join("".join(line) for line in lines)


environment = Environment(
    "GridWorld-v0",
    state=State,
    params=Params,
    observation=Discrete(SIDE * SIDE),
    action=Discrete(4),
    action_meanings=("up", "right", "down", "left"),
    render_fps=4,
    max_steps=100,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 50_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {"total_steps": 50_000, "hidden": (64,)},
        "tabular": {"total_steps": 50_000},
    },
)
