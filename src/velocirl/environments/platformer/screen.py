"""The picture of the platform game that agents see, row by row: the part of the level around the player, in gray."""

from velocirl.environments.platformer.level import (
    COLUMNS,
    FLAG,
    GROUND,
    GROUND_TOP,
    LENGTH,
    MOST_ENEMIES,
    PIXEL,
    TILE,
)

SIZE = 84  # pixels along a side
SIDE = TILE // PIXEL  # of a tile
SEEN_BEHIND = 4 * SIDE  # how far the player stands from the left edge
LENGTH_PIXELS = LENGTH // PIXEL
GROUND_PIXELS = GROUND_TOP // PIXEL

SKY, PIT, EARTH, GRASS, MORTAR = 150, 20, 95, 125, 75
PIPE, RIM, GLEAM = 200, 225, 240
POLE, CLOTH = 60, 255
POLE_TOP = 11 * SIDE


def sprite(*lines: str) -> tuple[int, int]:
    """The dark and the light pixels of a figure, each as a number with a bit for a pixel, from the bottom left on."""
    pixels = "".join(reversed(lines))
    dark, light = (sum(1 << place for place, found in enumerate(pixels) if found == mark) for mark in "#o")
    return dark, light


PLAYER_WIDTH, PLAYER_HEIGHT = 5, 8
PLAYER_DARK, PLAYER_LIGHT = sprite(
    ".###.",
    "#####",
    ".ooo.",
    ".ooo.",
    "#####",
    "o###o",
    ".###.",
    ".#.#.",
)
ENEMY_DARK, ENEMY_LIGHT = sprite(
    "..##..",
    ".####.",
    "#o##o#",
    "######",
    ".oooo.",
    "##..##",
)
PLAYER_GRAYS, ENEMY_GRAYS = (40, 255), (10, 220)


def camera(state):
    """The pixel of the level at the left edge of the picture."""
    return min(max(int(state.x) // PIXEL - SEEN_BEHIND, 0), LENGTH_PIXELS - SIZE)


def observe_row(state, params, y, row):
    left = camera(state)
    up = SIZE - 1 - y  # pixels above the bottom
    if up < GROUND_PIXELS:
        draw_ground(state, left, up, row)
    else:
        row[:] = SKY
        draw_pipes(state, left, up, row)
        draw_flag(left, up, row)
    rise = up - GROUND_PIXELS
    if 0 <= rise < SIDE:
        for k in range(MOST_ENEMIES):
            if state.enemy_velocity[k] != 0:
                paint(row, int(state.enemy_x[k]) // PIXEL - left, rise, SIDE, ENEMY_DARK, ENEMY_LIGHT, 10, 220)
    rise = up - int(state.y) // PIXEL
    if 0 <= rise < PLAYER_HEIGHT:
        paint(row, int(state.x) // PIXEL - left, rise, PLAYER_WIDTH, PLAYER_DARK, PLAYER_LIGHT, 40, 255)


def draw_ground(state, left, up, row):
    row[:] = GRASS if up >= GROUND_PIXELS - 2 else MORTAR if up % SIDE == 0 else EARTH
    if up < GROUND_PIXELS - 2:
        for x in range(SIDE - 1 - left % SIDE, SIZE, SIDE):
            row[x] = MORTAR
    first = left // SIDE
    for column in range(first, min(first + SIZE // SIDE + 1, COLUMNS)):
        if state.height[column] == 0:
            fill(row, column * SIDE - left, SIDE, PIT)


def draw_pipes(state, left, up, row):
    first = left // SIDE
    for column in range(first, min(first + SIZE // SIDE + 1, COLUMNS)):
        top = int(state.height[column]) * SIDE
        if up < top:
            x = column * SIDE - left
            fill(row, x, SIDE, RIM if up >= top - 2 else PIPE)
            fill(row, x + 1, 1, GLEAM)


def draw_flag(left, up, row):
    x = FLAG * SIDE - left
    if x < SIZE and up < POLE_TOP:
        fill(row, x + 2, 2, POLE)
        cloth = POLE_TOP - 1 - up
        if cloth < SIDE:
            fill(row, x + 4, SIDE - cloth, CLOTH)


def fill(row, x, width, gray):
    """Paint a run of pixels, of which some may lie outside of the picture."""
    row[max(x, 0) : max(min(x + width, SIZE), 0)] = gray


def paint(row, x, line, width, dark, light, dark_gray, light_gray):
    """Paint a line of a sprite."""
    for k in range(width):
        place = line * width + k
        if 0 <= x + k < SIZE:
            if dark >> place & 1:
                row[x + k] = dark_gray
            elif light >> place & 1:
                row[x + k] = light_gray
