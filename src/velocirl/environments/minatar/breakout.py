"""Breakout of MinAtar: a paddle keeps a ball in play, which breaks three rows of bricks.

Each brick pays 1, and the episode ends when the paddle misses the ball. The ball moves diagonally and bounces off walls
and bricks. If the ball was above the paddle, only its vertical direction reverses. If it only meets the paddle at the
cell it moves to, both directions reverse. When the last brick is broken, all are restored at the ball's next visit to
the bottom.
"""

from velocirl import Discrete, Environment, between, bool_, clear, int32, random, record
from velocirl.environments.minatar.screen import PPO, SIZE, Params, moved, painter, planes, take, toward, writer

STAY, LEFT, RIGHT = range(3)
PADDLE, BALL, TRAIL, BRICK, PLANES = range(5)
BOTTOM = SIZE - 1
TOP_BRICK, LAST_BRICK = 1, 3  # rows
WHOLE = 2**SIZE - 1  # a row of bricks: one bit per column


@record
class State:
    paddle: int32 = between(0, SIZE - 1)
    ball_row: int32 = between(0, SIZE - 2)  # the last row ends the episode, or sends the ball back
    ball_column: int32 = between(0, SIZE - 1)
    trail_row: int32 = between(0, SIZE - 1)
    trail_column: int32 = between(0, SIZE - 1)
    down: int32 = between(-1, 1)
    right: int32 = between(-1, 1)
    bricks: int32[LAST_BRICK + 1] = between(0, WHOLE)
    inside: bool_  # the ball entered a brick with its last step, and passes through others before it breaks the next
    last_action: int32 = between(0, 2)


def reset(state, params, rng):
    from_the_right = random.integer(rng, 0, 2)
    state.ball_row = 3
    state.ball_column = (SIZE - 1) * from_the_right
    state.trail_row = state.ball_row
    state.trail_column = state.ball_column
    state.down = 1
    state.right = 1 - 2 * from_the_right
    state.paddle = 4
    state.bricks[0] = 0
    build(state.bricks)
    state.inside = False
    state.last_action = STAY


def build(bricks):
    for row in range(TOP_BRICK, LAST_BRICK + 1):
        bricks[row] = WHOLE


def step(state, params, action, rng):
    action = take(state, params, action, rng)
    state.paddle = moved(state.paddle, toward(action, LEFT, RIGHT), 0, SIZE - 1)
    row = state.ball_row + state.down
    column = state.ball_column + state.right
    if column < 0 or column >= SIZE:
        column = state.ball_column
        state.right = -state.right

    reward, lost, inside = 0.0, False, False
    if row < 0:
        row = 0
        state.down = 1
    elif row <= LAST_BRICK and state.bricks[row] >> column & 1:
        inside = True
        if not state.inside:
            state.bricks[row] ^= 1 << column
            reward = 1.0
            row = state.ball_row
            state.down = -state.down
    elif row == BOTTOM:
        if state.bricks[1] | state.bricks[2] | state.bricks[3] == 0:
            build(state.bricks)
        if state.paddle == state.ball_column:
            state.down = -1
            row = state.ball_row
        elif state.paddle == column:
            state.down = -1
            state.right = -state.right
            row = state.ball_row
        else:
            lost = True

    state.inside = inside
    state.trail_row = state.ball_row
    state.trail_column = state.ball_column
    state.ball_row = row
    state.ball_column = column
    return reward, lost


def observe(state, params, screen):
    clear(screen)
    screen[BOTTOM, state.paddle, PADDLE] = 1
    screen[state.ball_row, state.ball_column, BALL] = 1
    screen[state.trail_row, state.trail_column, TRAIL] = 1
    for row in range(TOP_BRICK, LAST_BRICK + 1):
        bricks = state.bricks[row]
        for column in range(SIZE):
            screen[row, column, BRICK] = bricks >> column & 1


environment = Environment(
    "MinAtarBreakout-v1",
    state=State,
    params=Params,
    observation=planes(PLANES),
    action=Discrete(3),
    action_meanings=("stay", "left", "right"),
    render_fps=10,
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(observe, "blue", "orange", "stone", "red"),
    text=writer(observe, "=o'#"),
    presets={"ppo": {"total_steps": 5_000_000, **PPO}},
)
