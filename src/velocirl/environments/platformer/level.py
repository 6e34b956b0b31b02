"""Level of the platform game: its columns, its enemies, and its generation.

Lengths are integers in sixteenths of a pixel, so the game is identical, bit for bit, on every device.
"""

from velocirl import between, bool_, float32, int8, int32, random, record

PIXEL = 16
TILE = 6 * PIXEL
COLUMNS, TALL = 128, 14  # tiles along the level, and from the bottom of its image to the top
LENGTH = COLUMNS * TILE
GROUND = 2  # tiles
GROUND_TOP = GROUND * TILE
FLAG, POLE = COLUMNS - 8, 11  # column of the flag, and height of its pole
FIRST_OBSTACLE, LAST_OBSTACLE = 10, FLAG - 14  # columns between which obstacles begin

GAP, PIPE, ENEMIES, OBSTACLES = range(4)
HARDEST = 3
LEAST_GROUND, MOST_GROUND = 6, 9  # columns between two obstacles in the easiest levels; fewer in others
NARROWEST_GAP, WIDEST_GAP = 2, 2 + HARDEST
PIPE_WIDTH = 2
LOWEST_PIPE, HIGHEST_PIPE = 2, 4  # above the ground
MOST_ENEMIES = 16
MOST_TOGETHER = 3  # enemies in one obstacle
SLOWEST_ENEMY, FASTEST_ENEMY = 3, 3 + HARDEST  # per frame

WIDTH, HEIGHT = 5 * PIXEL, 8 * PIXEL  # of the player
RUN = PIXEL  # maximum speed, per frame
TAKE_OFF = 42  # upward speed at the start of a jump
FALL = 3 * PIXEL  # maximum speed downward
CEILING = TALL * TILE - HEIGHT
FIRST_START, LAST_START = 2, FLAG - 4  # columns


@record
class State:
    height: int8[COLUMNS] = between(0, GROUND + HIGHEST_PIPE)  # in tiles: 0 is a gap, above GROUND it is a pipe
    enemy_x: int32[MOST_ENEMIES] = between(0, LENGTH - TILE)
    enemy_velocity: int32[MOST_ENEMIES] = between(-FASTEST_ENEMY, FASTEST_ENEMY)  # 0: absent or removed
    x: int32 = between(0, LENGTH - WIDTH)  # of the player's left edge
    y: int32 = between(-HEIGHT, CEILING)  # of the player's feet, above the bottom of the image
    velocity_x: int32 = between(-RUN, RUN)
    velocity_y: int32 = between(-FALL, TAKE_OFF)
    held: bool_  # whether the jump is held: it must be released before the next jump
    begin: int32 = between(0, LENGTH)
    farthest: int32 = between(0, LENGTH)  # the player's farthest position
    distance: float32  # from `begin` to `farthest`, in tiles
    flag: bool_  # whether it was reached


@record
class Params:
    difficulty: int32 = between(0, HARDEST, default=0)  # wider gaps, higher pipes, more and faster enemies
    start: float32 = between(0, 1, default=0)  # start of episodes, as a fraction of the level
    progress_reward: float32 = 0.1  # per tile beyond the farthest position
    progress_cap: float32 = 1.0  # rewarded pixels per frame, at most
    idle_reward: float32 = -0.002  # per frame without progress
    death_reward: float32 = -1.0
    flag_reward: float32 = 5.0


def build(state, difficulty, rng):
    """Generate a level: passable obstacles with ground between them."""
    for column in range(COLUMNS):
        state.height[column] = GROUND
    for k in range(MOST_ENEMIES):
        state.enemy_x[k] = 0
        state.enemy_velocity[k] = 0
    column, enemies = FIRST_OBSTACLE, 0
    while column < LAST_OBSTACLE:
        kind = random.integer(rng, 0, OBSTACLES)
        more = random.integer(rng, 0, 1 + difficulty)  # than the minimum
        if kind == GAP:
            width = NARROWEST_GAP + more
            raise_to(state, column, width, 0)
            column += width
        elif kind == PIPE:
            raise_to(state, column, PIPE_WIDTH, GROUND + min(LOWEST_PIPE + more, HIGHEST_PIPE))
            column += PIPE_WIDTH
        else:
            for _ in range(min(1 + more, MOST_TOGETHER)):
                if enemies < MOST_ENEMIES:
                    state.enemy_x[enemies] = column * TILE
                    state.enemy_velocity[enemies] = -(SLOWEST_ENEMY + difficulty)
                    enemies += 1
                column += 2
        column += random.integer(rng, LEAST_GROUND - difficulty, MOST_GROUND - difficulty + 1)


def raise_to(state, first, width, height):
    for column in range(first, first + width):
        state.height[column] = height


def safe_column(state, column):
    """Return the first column from here on where a player can stand, with no enemy near."""
    column = min(max(column, FIRST_START), LAST_START)
    while column < LAST_START and not is_safe(state, column):
        column += 1
    return column


def is_safe(state, column):
    safe = True
    for neighbour in range(column - 1, column + 2):
        safe = safe and state.height[neighbour] == GROUND
    for k in range(MOST_ENEMIES):
        near = abs(state.enemy_x[k] - column * TILE) < 5 * TILE
        safe = safe and not (near and state.enemy_velocity[k] != 0)
    return safe


def floor_below(state, x):
    """Return the height of the ground below a player at x; far below the image if there is none."""
    left, right = int(state.height[x // TILE]), int(state.height[(x + WIDTH - 1) // TILE])
    height = max(left, right)
    return height * TILE if height > 0 else -LENGTH
