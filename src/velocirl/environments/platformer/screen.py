"""Agent's image of the platform game, row by row: the part of the level around the player, in gray."""

from velocirl.environments.platformer.level import (
    COLUMNS,
    FLAG,
    GROUND,
    GROUND_TOP,
    HIGHEST_PIPE,
    LENGTH,
    MOST_ENEMIES,
    PIXEL,
    POLE,
    TALL,
    TILE,
)

SIDE = TILE // PIXEL  # of a tile, in pixels
SIZE = TALL * SIDE  # of the image
SEEN = SIZE // SIDE + 1  # visible columns, the first and the last partly
BEHIND = 4 * SIDE  # distance of the player from the left edge
LENGTH_PIXELS = LENGTH // PIXEL
GROUND_PIXELS = GROUND_TOP // PIXEL
PIPES_PIXELS = (GROUND + HIGHEST_PIPE) * SIDE
POLE_PIXELS = POLE * SIDE

# Gray values. The sky is black: networks learn in a fraction of the steps if most of the image is 0.
SKY, BRICK, GRASS, MORTAR = 0, 95, 125, 75
PIPE, RIM, GLEAM = 200, 225, 240
STAFF, CLOTH = 120, 255
DARK, LIGHT = 170, 255  # of sprites


def pixels(lines: tuple[str, ...], marks: str) -> int:
    """Return a sprite's pixels with any of these marks as a bit set, from the bottom left on."""
    return sum(1 << place for place, mark in enumerate("".join(reversed(lines))) if mark in marks)


# Marks: (c)ap, (j)acket, (b)rown, (s)kin.
PLAYER = (
    ".ccc.",
    "ccccc",
    ".sss.",
    ".sss.",
    "jjjjj",
    "sjjjs",
    ".jjj.",
    ".b.b.",
)
JUMPER = (*PLAYER[:3], "sssss", PLAYER[4], ".jjj.", *PLAYER[6:])  # hands up while the jump is held
ENEMY = (
    "..bb..",
    ".bbbb.",
    "bsbbsb",
    "bbbbbb",
    ".ssss.",
    "bb..bb",
)
PLAYER_DARK, PLAYER_LIGHT = pixels(PLAYER, "cjb"), pixels(PLAYER, "s")
JUMPER_DARK, JUMPER_LIGHT = pixels(JUMPER, "cjb"), pixels(JUMPER, "s")
ENEMY_DARK, ENEMY_LIGHT = pixels(ENEMY, "b"), pixels(ENEMY, "s")
PLAYER_WIDTH, PLAYER_HEIGHT, ENEMY_WIDTH = len(PLAYER[0]), len(PLAYER), len(ENEMY[0])


def camera(state):
    """Return the level's pixel column at the left edge of the image."""
    return min(max(int(state.x) // PIXEL - BEHIND, 0), LENGTH_PIXELS - SIZE)


def observe_row(state, params, y, row):
    left, up = camera(state), SIZE - 1 - y  # pixels from the level's left end and from the bottom
    if up < GROUND_PIXELS:
        draw_ground(state.height, left, up, row)
    else:
        row[:] = SKY
        if up < PIPES_PIXELS:
            draw_pipes(state.height, left, up, row)
        draw_flag(left, up, row)
        if up < GROUND_PIXELS + SIDE:
            draw_enemies(state, left, up - GROUND_PIXELS, row)
    line = up - int(state.y) // PIXEL
    if 0 <= line < PLAYER_HEIGHT:
        dark = JUMPER_DARK if state.held else PLAYER_DARK
        light = JUMPER_LIGHT if state.held else PLAYER_LIGHT
        paint(row, int(state.x) // PIXEL - left, PLAYER_WIDTH, dark, light, line)


def draw_ground(heights, left, up, row):
    """Draw bricks below grass, and the sky in gaps."""
    if up >= GROUND_PIXELS - 2:
        row[:] = GRASS
    else:
        row[:] = MORTAR if up % SIDE == 0 else BRICK
        for x in range(SIDE - 1 - left % SIDE, SIZE, SIDE):
            row[x] = MORTAR
    first = left // SIDE
    for column in range(first, min(first + SEEN, COLUMNS)):
        if heights[column] == 0:
            fill(row, column * SIDE - left, SIDE, SKY)


def draw_pipes(heights, left, up, row):
    first = left // SIDE
    for column in range(first, min(first + SEEN, COLUMNS)):
        above = up - int(heights[column]) * SIDE
        if above < 0:
            x = column * SIDE - left
            fill(row, x, SIDE, PIPE if above < -2 else RIM)
            fill(row, x + 1, 1, GLEAM)


def draw_flag(left, up, row):
    x, below = FLAG * SIDE - left, POLE_PIXELS - 1 - up
    if x < SIZE and below >= 0:
        fill(row, x + 2, 2, STAFF)
        fill(row, x + 4, SIDE - below, CLOTH)


def draw_enemies(state, left, line, row):
    positions, velocities = state.enemy_x, state.enemy_velocity
    for k in range(MOST_ENEMIES):
        x = int(positions[k]) // PIXEL - left
        if velocities[k] != 0 and -ENEMY_WIDTH < x < SIZE:
            paint(row, x, ENEMY_WIDTH, ENEMY_DARK, ENEMY_LIGHT, line)


def fill(row, x, width, gray):
    """Fill a run of pixels, clipped to the image."""
    first, end = max(x, 0), min(x + width, SIZE)
    if first < end:
        row[first:end] = gray


def paint(row, x, width, dark, light, line):
    """Draw one line of a sprite over the row."""
    for k in range(width):
        pixel = line * width + k
        if 0 <= x + k < SIZE:
            if dark >> pixel & 1:
                row[x + k] = DARK
            elif light >> pixel & 1:
                row[x + k] = LIGHT
