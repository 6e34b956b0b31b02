"""Asterix of MinAtar: collect the gold that crosses the screen, and touch no enemy.

Gold pays 1, an enemy ends the episode. Objects enter from either side, at most one per row, a third of them gold. With
`ramping`, they appear more often over time, and move faster.
"""

from velocirl import Discrete, Environment, between, clear, int32, random, record
from velocirl.environments.minatar.screen import (
    LARGE_PPO,
    SIZE,
    RampingParams,
    moved,
    painter,
    planes,
    take,
    toward,
    writer,
)

STAY, LEFT, UP, RIGHT, DOWN = range(5)
PLAYER, ENEMY, TRAIL, GOLD, PLANES = range(5)
ROWS = 8  # rows that objects cross: all but the first and the last
NOTHING = 0  # otherwise the plane of the object in the row
FIRST_SPAWN, FIRST_MOVE = 10, 5  # steps between two spawns, and between two moves
RAMP = 100  # steps until the game becomes faster, plus two


@record
class State:
    row: int32 = between(1, ROWS)
    column: int32 = between(0, SIZE - 1)
    kind: int32[ROWS] = between(NOTHING, GOLD)
    place: int32[ROWS] = between(0, SIZE - 1)
    course: int32[ROWS] = between(-1, 1)
    spawn_speed: int32 = between(1, FIRST_SPAWN)
    spawn_timer: int32 = between(0, FIRST_SPAWN)
    move_speed: int32 = between(1, FIRST_MOVE)
    move_timer: int32 = between(0, FIRST_MOVE)
    ramp_timer: int32 = between(-1, RAMP)
    ramps: int32 = between(0, FIRST_SPAWN + 2 * FIRST_MOVE)
    last_action: int32 = between(0, 4)


def reset(state, params, rng):
    state.row = 5
    state.column = 5
    for k in range(ROWS):
        state.kind[k] = NOTHING
        state.place[k] = 0
        state.course[k] = 1
    state.spawn_speed = FIRST_SPAWN
    state.spawn_timer = FIRST_SPAWN
    state.move_speed = FIRST_MOVE
    state.move_timer = FIRST_MOVE
    state.ramp_timer = RAMP
    state.ramps = 0
    state.last_action = STAY


def spawn(state, rng):
    """Spawn an object in a free row, if there is one."""
    from_the_left = random.uniform(rng) < 1 / 2
    gold = random.uniform(rng) < 1 / 3
    free = 0
    for k in range(ROWS):
        free += state.kind[k] == NOTHING
    if free == 0:
        return
    skipped = random.integer(rng, 0, free)
    row = 0
    for k in range(ROWS):
        is_free = state.kind[k] == NOTHING
        row = k if is_free and skipped == 0 else row
        skipped -= is_free
    state.kind[row] = GOLD if gold else ENEMY
    state.place[row] = 0 if from_the_left else SIZE - 1
    state.course[row] = 1 if from_the_left else -1


def touch(state):
    """Resolve contact of the player with an object; returns the reward and whether it is an enemy."""
    k = state.row - 1
    met = state.kind[k] != NOTHING and state.place[k] == state.column
    gold = met and state.kind[k] == GOLD
    if gold:
        state.kind[k] = NOTHING
    return 1.0 if gold else 0.0, met and not gold


def step(state, params, action, rng):
    action = take(state, params, action, rng)
    if state.spawn_timer == 0:
        spawn(state, rng)
        state.spawn_timer = state.spawn_speed
    state.column = moved(state.column, toward(action, LEFT, RIGHT), 0, SIZE - 1)
    state.row = moved(state.row, toward(action, UP, DOWN), 1, ROWS)

    reward, lost = touch(state)
    if state.move_timer == 0:
        state.move_timer = state.move_speed
        for k in range(ROWS):
            place = state.place[k] + state.course[k]
            gone = place < 0 or place >= SIZE
            state.kind[k] = NOTHING if gone else state.kind[k]
            state.place[k] = state.place[k] if gone else place
        more, caught = touch(state)
        reward += more
        lost = lost or caught
    state.spawn_timer -= 1
    state.move_timer -= 1
    if params.ramping:
        ramp(state)
    return reward, lost


def ramp(state):
    """Increase the speed when the ramp timer has expired."""
    if state.spawn_speed == 1 and state.move_speed == 1:
        return
    if state.ramp_timer >= 0:
        state.ramp_timer -= 1
        return
    if state.move_speed > 1 and state.ramps % 2 == 1:
        state.move_speed -= 1
    if state.spawn_speed > 1:
        state.spawn_speed -= 1
    state.ramps += 1
    state.ramp_timer = RAMP


def observe(state, params, screen):
    clear(screen)
    screen[state.row, state.column, PLAYER] = 1
    for k in range(ROWS):  # branchless: the processor could not predict a jump
        kind, place, behind = state.kind[k], state.place[k], state.place[k] - state.course[k]
        screen[k + 1, place, ENEMY] = kind == ENEMY
        screen[k + 1, place, GOLD] = kind == GOLD
        seen = 0 <= behind < SIZE
        screen[k + 1, behind if seen else place, TRAIL] = seen and kind != NOTHING


environment = Environment(
    "MinAtarAsterix-v1",
    state=State,
    params=RampingParams,
    observation=planes(PLANES),
    action=Discrete(5),
    action_meanings=("stay", "left", "up", "right", "down"),
    render_fps=10,
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(observe, "blue", "red", "stone", "amber"),
    text=writer(observe, "Px'$"),
    presets={"ppo": {"total_steps": 30_000_000, **LARGE_PPO}},
)
