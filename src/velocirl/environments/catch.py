"""Catch: a ball falls down a board, and a paddle must be under it when it lands (Osband et al., bsuite, 2020).

The ball starts in a uniformly sampled column, the paddle in the middle. The episode ends after 9 steps: 1 for a catch,
-1 for a miss. Only the last step has a reward, so credit must propagate back. A perfect policy earns 1.
"""

from velocirl import Box, Discrete, Environment, between, int32, random, record
from velocirl.engine.canvas import BLUE, MIST, ORANGE, PAPER

HEIGHT, WIDTH = 10, 5


@record
class State:
    ball_row: int32 = between(0, HEIGHT - 2)  # the last row ends the episode
    ball_column: int32 = between(0, WIDTH - 1)
    paddle: int32 = between(0, WIDTH - 1)


def reset(state, params, rng):
    state.ball_row = 0
    state.ball_column = random.integer(rng, 0, WIDTH)
    state.paddle = WIDTH // 2


def step(state, params, action, rng):
    state.paddle = min(max(state.paddle + action - 1, 0), WIDTH - 1)  # left, stay, right
    state.ball_row += 1
    if state.ball_row < HEIGHT - 1:
        return 0.0, False
    return 1.0 if state.paddle == state.ball_column else -1.0, True


def observe(state, params, observation):
    for cell in range(HEIGHT * WIDTH):
        observation[cell] = 0.0
    observation[WIDTH * state.ball_row + state.ball_column] = 1.0
    observation[WIDTH * (HEIGHT - 1) + state.paddle] = 1.0


def draw(state, params, canvas):
    canvas.view(0, WIDTH, HEIGHT, 0, width=40 * WIDTH, height=40 * HEIGHT, background=MIST)
    for row in range(HEIGHT):
        for column in range(WIDTH):
            canvas.rectangle(column + 0.02, row + 0.98, column + 0.98, row + 0.02, PAPER)
    canvas.rectangle(state.paddle + 0.08, HEIGHT - 0.1, state.paddle + 0.92, HEIGHT - 0.35, BLUE)
    canvas.disc(state.ball_column + 0.5, state.ball_row + 0.4, 0.25, ORANGE)


def text(state, params):
    lines = [["."] * WIDTH for _ in range(HEIGHT)]
    lines[HEIGHT - 1][state.paddle] = "="
    lines[state.ball_row][state.ball_column] = "o"
    return "\n".join("".join(line) for line in lines)


environment = Environment(
    "Catch-v0",
    state=State,
    observation=Box(0, 1, shape=(HEIGHT * WIDTH,)),
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
            "train_every": 2,
            "n_step": 3,
            "target_every": 250,
            "exploration_fraction": 0.3,
        },
    },
)
