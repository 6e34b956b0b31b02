"""A level of the platform game: what stands in each of its columns, which enemies walk there, and how one is made.

Lengths are whole numbers of sixteenths of a pixel, and so the game is the same, bit for bit, on every device.
"""

from velocirl import between, bool_, float32, int8, int32, random, record

PIXEL = 16
TILE = 6 * PIXEL
COLUMNS, TALL = 128, 14  # tiles along the level, and from the bottom of its picture to the top
LENGTH = COLUMNS * TILE
GROUND = 2  # tiles
GROUND_TOP = GROUND * TILE
FLAG, POLE = COLUMNS - 8, 11  # its column, and how high its pole reaches
FIRST_OBSTACLE, LAST_OBSTACLE = 10, FLAG - 14  # the columns between which obstacles begin

GAP, PIPE, ENEMIES, OBSTACLES = range(4)
HARDEST = 3
LEAST_GROUND, MOST_GROUND = 6, 9  # columns between two obstacles of the easiest levels; in others, fewer
NARROWEST_GAP, WIDEST_GAP = 2, 2 + HARDEST
PIPE_WIDTH = 2
LOWEST_PIPE, HIGHEST_PIPE = 2, 4  # above the ground
MOST_ENEMIES = 16
MOST_TOGETHER = 3  # enemies that make one obstacle
SLOWEST_ENEMY, FASTEST_ENEMY = 3, 3 + HARDEST  # per frame

WIDTH, HEIGHT = 5 * PIXEL, 8 * PIXEL  # of the player
RUN = PIXEL  # its greatest speed, per frame
TAKE_OFF = 42  # its speed upwards as it jumps
FALL = 3 * PIXEL  # its greatest speed downwards
CEILING = TALL * TILE - HEIGHT
FIRST_START, LAST_START = 2, FLAG - 4  # columns


@record
class State:
    height: int8[COLUMNS] = between(0, GROUND + HIGHEST_PIPE)  # in tiles: 0 is a gap, above GROUND it is a pipe
    enemy_x: int32[MOST_ENEMIES] = between(0, LENGTH - TILE)
    enemy_velocity: int32[MOST_ENEMIES] = between(-FASTEST_ENEMY, FASTEST_ENEMY)  # 0: not there, or not any more
    x: int32 = between(0, LENGTH - WIDTH)  # of the player's left edge
    y: int32 = between(-HEIGHT, CEILING)  # of its feet, above the bottom of the picture
    velocity_x: int32 = between(-RUN, RUN)
    velocity_y: int32 = between(-FALL, TAKE_OFF)
    held: bool_  # whether the jump is held: who does not let go of it cannot jump again
    begin: int32 = between(0, LENGTH)
    farthest: int32 = between(0, LENGTH)  # where the player has ever been
    distance: float32  # from the beginning to there, in tiles
    flag: bool_  # whether it was reached


@record
class Params:
    difficulty: int32 = between(0, HARDEST, default=0)  # gaps wider, pipes higher, enemies more and faster
    start: float32 = between(0, 1, default=0)  # where episodes begin, as a share of the level
    progress_reward: float32 = 0.1  # for each tile farther than ever
    progress_cap: float32 = 1.0  # pixels of a frame that count at most
    idle_reward: float32 = -0.002  # for each frame that leads no farther
    death_reward: float32 = -1.0
    flag_reward: float32 = 5.0


def build(state, difficulty, rng):
    """Make a level: obstacles that a player can pass, with ground between them."""
    for column in range(COLUMNS):
        state.height[column] = GROUND
    for k in range(MOST_ENEMIES):
        state.enemy_x[k] = 0
        state.enemy_velocity[k] = 0
    column, enemies = FIRST_OBSTACLE, 0
    while column < LAST_OBSTACLE:
        kind = random.integer(rng, 0, OBSTACLES)
        more = random.integer(rng, 0, 1 + difficulty)  # than the least
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
    """The first column from here on in which a player can stand, with no enemy near."""
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
    """How high the ground is on which a player at x can stand; far below the picture where there is none."""
    left, right = int(state.height[x // TILE]), int(state.height[(x + WIDTH - 1) // TILE])
    height = max(left, right)
    return height * TILE if height > 0 else -LENGTH
