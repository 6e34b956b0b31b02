"""CliffWalking: from one corner to the next along a cliff (Sutton and Barto, 2018, example 6.6).

Each step costs 1; a step off the cliff costs 100 and leads back to the start. The shortest path, right along the edge,
takes 13 steps: a perfect policy earns -13. As in Gymnasium, `is_slippery` moves the walker to either side of the
intended direction with probability 1/3 each. Gymnasium sets no time limit. Here it is 1,000 steps, so that policies
that never arrive can be evaluated too.
"""

from velocirl import Discrete, Environment, between, bool_, int32, random, record
from velocirl.engine.canvas import GREEN, INK, MIST, PAPER, RED, SKY, SLATE

HEIGHT, WIDTH = 4, 12
LAST_ROW, LAST_COLUMN = HEIGHT - 1, WIDTH - 1
UP, RIGHT, DOWN, LEFT = 0, 1, 2, 3


@record
class State:
    row: int32 = between(0, LAST_ROW)
    column: int32 = between(0, LAST_COLUMN)


@record
class Params:
    is_slippery: bool_ = False


def reset(state, params, rng):
    state.row = LAST_ROW
    state.column = 0


def step(state, params, action, rng):
    direction = (action + random.integer(rng, -1, 2)) % 4 if params.is_slippery else action
    state.row = min(max(state.row + (direction == DOWN) - (direction == UP), 0), LAST_ROW)
    state.column = min(max(state.column + (direction == RIGHT) - (direction == LEFT), 0), LAST_COLUMN)

    if state.row == LAST_ROW and 0 < state.column < LAST_COLUMN:
        state.column = 0
        return -100.0, False
    return -1.0, state.row == LAST_ROW and state.column == LAST_COLUMN


def observe(state, params, observation):
    observation[0] = WIDTH * state.row + state.column


def draw(state, params, canvas):
    canvas.view(0, WIDTH, HEIGHT, 0, width=48 * WIDTH, height=48 * HEIGHT, background=MIST)
    for row in range(HEIGHT):
        for column in range(WIDTH):
            canvas.rectangle(column + 0.02, row + 0.98, column + 0.98, row + 0.02, PAPER)
    canvas.rectangle(0.02, HEIGHT - 0.02, 0.98, LAST_ROW + 0.02, SKY)
    canvas.rectangle(1, HEIGHT, LAST_COLUMN, LAST_ROW, INK)
    for column in range(1, LAST_COLUMN):  # teeth of rock along the edge
        canvas.polygon([(column, LAST_ROW), (column + 0.5, LAST_ROW + 0.4), (column + 1, LAST_ROW)], SLATE)
    canvas.rectangle(LAST_COLUMN + 0.02, HEIGHT - 0.02, WIDTH - 0.02, LAST_ROW + 0.02, GREEN)
    canvas.disc(state.column + 0.5, state.row + 0.5, 0.3, RED)


def text(state, params):
    lines = [["."] * WIDTH for _ in range(LAST_ROW)] + [["S", *"C" * (WIDTH - 2), "G"]]
    lines[state.row][state.column] = "@"
    return "\n".join("".join(line) for line in lines)


environment = Environment(
    "CliffWalking-v1",
    state=State,
    params=Params,
    observation=Discrete(HEIGHT * WIDTH),
    action=Discrete(4),
    action_meanings=("up", "right", "down", "left"),
    render_fps=4,
    max_steps=1000,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {
            "total_steps": 300_000,
            "num_envs": 64,
            "learning_rate": 0.005,
            "hidden": (64,),
            "entropy_coefficient": 0.1,
            "normalise_rewards": True,
        },
        "dqn": {"total_steps": 100_000, "learning_rate": 0.004, "hidden": (64,), "exploration_fraction": 0.3},
        "tabular": {"total_steps": 100_000},
    },
)
