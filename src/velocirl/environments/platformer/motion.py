"""Motion of the player and the enemies of the platform game in one frame."""

from velocirl.environments.platformer.level import (
    CEILING,
    FALL,
    GROUND,
    GROUND_TOP,
    LENGTH,
    MOST_ENEMIES,
    RUN,
    TAKE_OFF,
    TILE,
    WIDTH,
    floor_below,
)

NOTHING, RIGHT, RIGHT_JUMP, RIGHT_RUN, RIGHT_JUMP_RUN, JUMP, LEFT, ACTIONS = range(8)
WALK = 10  # speed, per frame
ACCELERATION = 1
RISING, FALLING = 2, 5  # gravity: lower while the jump is held
BOUNCE = 24  # upward speed after landing on an enemy
AWAKE = 14 * TILE  # enemies farther away than this wait


def move_player(state, action):
    direction = -1 if action == LEFT else 0 if action in (NOTHING, JUMP) else 1
    wanted = direction * (RUN if action in (RIGHT_RUN, RIGHT_JUMP_RUN) else WALK)
    state.velocity_x += min(max(wanted - state.velocity_x, -ACCELERATION), ACCELERATION)
    x = min(max(state.x + state.velocity_x, 0), LENGTH - WIDTH)
    if state.y < floor_below(state, x):  # a wall
        state.velocity_x = 0
    else:
        state.x = x

    jump = action in (RIGHT_JUMP, RIGHT_JUMP_RUN, JUMP)
    floor = floor_below(state, state.x)
    if jump and not state.held and state.y == floor:
        state.velocity_y = TAKE_OFF
    else:
        gravity = RISING if jump and state.velocity_y > 0 else FALLING
        state.velocity_y = max(state.velocity_y - gravity, -FALL)
    state.held = jump
    state.y = min(state.y + state.velocity_y, CEILING)
    if state.y <= floor:
        state.y = floor
        state.velocity_y = 0


def move_enemies(state):
    """Move the enemies; returns whether one has hurt the player."""
    hurt = False
    for k in range(MOST_ENEMIES):
        if state.enemy_velocity[k] != 0 and abs(state.enemy_x[k] - state.x) < AWAKE:
            walk(state, k)
            hurt = meet(state, k) or hurt
    return hurt


def walk(state, k):
    """Move one enemy; it turns around at the edge of the ground."""
    velocity = state.enemy_velocity[k]
    x = state.enemy_x[k] + velocity
    ahead = x if velocity < 0 else x + TILE - 1
    if 0 <= ahead < LENGTH and state.height[ahead // TILE] == GROUND:
        state.enemy_x[k] = x
    else:
        state.enemy_velocity[k] = -velocity


def meet(state, k):
    """Return whether an enemy hurts the player; landing on it removes it and bounces the player."""
    apart = state.x - state.enemy_x[k]
    if not -WIDTH < apart < TILE or state.y >= GROUND_TOP + TILE:
        return False
    above = state.y >= GROUND_TOP + TILE // 2
    if above and state.velocity_y < 0:
        state.enemy_velocity[k] = 0
        state.velocity_y = BOUNCE
    return not above
