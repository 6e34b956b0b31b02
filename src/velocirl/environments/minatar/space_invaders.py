"""Space Invaders of MinAtar: a cannon shoots at a wave of aliens, which approach and shoot back.

Each alien pays 1. A bullet or an alien that reaches the cannon ends the episode, and so does a wave below the screen.
The fewer aliens are left, the faster they move. Each wave is followed by another; with `ramping`, by a faster one.
"""

from velocirl import Discrete, Environment, between, clear, int32, record
from velocirl.environments.minatar.screen import (
    PPO,
    SIZE,
    RampingParams,
    moved,
    painter,
    planes,
    take,
    toward,
    writer,
)

STAY, LEFT, RIGHT, FIRE = range(4)
CANNON, ALIEN, GOES_LEFT, GOES_RIGHT, BULLET, ALIEN_BULLET, PLANES = range(7)
BOTTOM = SIZE - 1
WHOLE = 2**SIZE - 1  # a row of the screen: one bit per column
WAVE_ROWS, WAVE = 4, 0b0011111100
RELOADING = 5  # steps until the cannon can fire again
SLOWEST, SLOWEST_OF_LAST = 12, 6  # steps between two moves of a wave, of the first and of the fastest
ALIENS_SHOOT = 10  # steps between two shots of the aliens


@record
class State:
    cannon: int32 = between(0, SIZE - 1)
    aliens: int32[SIZE] = between(0, WHOLE)
    bullets: int32[SIZE] = between(0, WHOLE)
    alien_bullets: int32[SIZE] = between(0, WHOLE)
    course: int32 = between(-1, 1)
    interval: int32 = between(SLOWEST_OF_LAST, SLOWEST)
    move_timer: int32 = between(0, SLOWEST)
    shot_timer: int32 = between(0, ALIENS_SHOOT)
    reload_timer: int32 = between(0, RELOADING)
    last_action: int32 = between(0, 3)


def reset(state, params, rng):
    state.cannon = 5
    for row in range(SIZE):
        state.aliens[row] = WAVE if row < WAVE_ROWS else 0
        state.bullets[row] = 0
        state.alien_bullets[row] = 0
    state.course = -1
    state.interval = SLOWEST
    state.move_timer = SLOWEST
    state.shot_timer = ALIENS_SHOOT
    state.reload_timer = 0
    state.last_action = STAY


def count_of(cells):
    """Count the set cells of a row: per two neighbors, then per four, then all."""
    pairs = cells - (cells >> 1 & 0b01_0101_0101)
    fours = (pairs & 0b11_0011_0011) + (pairs >> 2 & 0b11_0011_0011)
    return (fours & 15) + (fours >> 4 & 15) + (fours >> 8)


def step(state, params, action, rng):
    action = take(state, params, action, rng)
    if action == FIRE and state.reload_timer == 0:
        state.bullets[BOTTOM] |= 1 << state.cannon
        state.reload_timer = RELOADING
    state.cannon = moved(state.cannon, toward(action, LEFT, RIGHT), 0, SIZE - 1)
    fly(state)

    here = 1 << state.cannon
    lost = (state.alien_bullets[BOTTOM] | state.aliens[BOTTOM]) & here != 0
    if state.move_timer == 0:
        lost = advance(state) or lost or state.aliens[BOTTOM] & here != 0
    if state.shot_timer == 0:
        state.shot_timer = ALIENS_SHOOT
        shoot_back(state)
    reward = hits(state)

    state.reload_timer = max(state.reload_timer - 1, 0)
    state.move_timer -= 1
    state.shot_timer -= 1
    if aliens_left(state) == 0:
        if params.ramping and state.interval > SLOWEST_OF_LAST:
            state.interval -= 1
        for row in range(WAVE_ROWS):
            state.aliens[row] = WAVE
    return reward, lost


def fly(state):
    """Move the cannon's bullets up and the aliens' down."""
    for row in range(BOTTOM):
        state.bullets[row] = state.bullets[row + 1]
        state.alien_bullets[BOTTOM - row] = state.alien_bullets[BOTTOM - row - 1]
    state.bullets[BOTTOM] = 0
    state.alien_bullets[0] = 0


def aliens_left(state):
    left = 0
    for row in range(SIZE):
        left += count_of(state.aliens[row])
    return left


def advance(state):
    """Move the wave sideways or, at an edge, down and reverse it; returns whether an alien left the screen's bottom."""
    state.move_timer = min(aliens_left(state), state.interval)
    occupied = 0
    for row in range(SIZE):
        occupied |= state.aliens[row]
    at_the_edge = occupied & (1 if state.course < 0 else 1 << SIZE - 1) != 0
    if not at_the_edge:
        for row in range(SIZE):
            state.aliens[row] = state.aliens[row] << 1 if state.course > 0 else state.aliens[row] >> 1
        return False
    state.course = -state.course
    lowest = state.aliens[BOTTOM]
    for row in range(BOTTOM):
        state.aliens[BOTTOM - row] = state.aliens[BOTTOM - row - 1]
    state.aliens[0] = lowest  # as in the package: they enter again at the top
    return lowest != 0


def shoot_back(state):
    """Let the lowest alien in the column nearest to the cannon shoot; the left column wins ties."""
    chosen_row, chosen_column = -1, -1
    for distance in range(SIZE):
        for side in range(2):
            column = state.cannon + (distance if side == 1 else -distance)
            if chosen_row < 0 and 0 <= column < SIZE:
                for row in range(SIZE):
                    if state.aliens[row] >> column & 1:
                        chosen_row, chosen_column = row, column
    if chosen_row >= 0:
        state.alien_bullets[chosen_row] |= 1 << chosen_column


def hits(state):
    """Remove aliens and bullets that collide, and count them."""
    hit = 0
    for row in range(SIZE):
        both = state.aliens[row] & state.bullets[row]
        if both != 0:
            state.aliens[row] ^= both
            state.bullets[row] ^= both
            hit += count_of(both)
    return float(hit)


def observe(state, params, screen):
    clear(screen)
    screen[BOTTOM, state.cannon, CANNON] = 1
    heading = GOES_LEFT if state.course < 0 else GOES_RIGHT
    for row in range(SIZE):
        show(screen, row, state.aliens[row], ALIEN)
        show(screen, row, state.aliens[row], heading)
        show(screen, row, state.bullets[row], BULLET)
        show(screen, row, state.alien_bullets[row], ALIEN_BULLET)


def show(screen, row, cells, plane):
    """Write a row of cells; most rows are empty."""
    if cells != 0:
        for column in range(SIZE):
            screen[row, column, plane] = cells >> column & 1


environment = Environment(
    "MinAtarSpaceInvaders-v1",
    state=State,
    params=RampingParams,
    observation=planes(PLANES),
    action=Discrete(4),
    action_meanings=("stay", "left", "right", "fire"),
    render_fps=10,
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(observe, "blue", "green", "green", "green", "white", "red"),
    text=writer(observe, "AwwW|!"),
    presets={"ppo": {"total_steps": 5_000_000, **PPO}},
)
