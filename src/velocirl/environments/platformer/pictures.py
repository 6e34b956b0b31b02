"""Rendering of the platform game for humans: in color, or as text."""

from velocirl.engine.canvas import GREEN, INK, MEADOW, ORANGE, RED, SKY, SLATE, STONE, VIOLET, WHITE, WOOD
from velocirl.environments.platformer.level import COLUMNS, FLAG, GROUND, MOST_ENEMIES, PIXEL, POLE, TALL, TILE
from velocirl.environments.platformer.screen import ENEMY, JUMPER, PLAYER, SIDE

WIDE = 24  # visible tiles, some more than agents see
BROWN, BARK, MOSS, SKIN = (110, 66, 38), (139, 100, 63), (62, 120, 66), (250, 214, 165)
COLORS = {"c": ORANGE, "j": VIOLET, "b": BROWN, "s": SKIN}  # by the marks in sprites


def draw(state, params, canvas):
    left = min(max(in_tiles(state.x) - WIDE / 3, 0.0), COLUMNS - WIDE)
    canvas.view(left, left + WIDE, 0, TALL, width=24 * WIDE, height=24 * TALL, background=SKY)
    draw_background(left, canvas)
    for column in range(int(left), min(int(left) + WIDE + 1, COLUMNS)):
        draw_column(column, int(state.height[column]), canvas)
    draw_flag(canvas)
    for k in range(MOST_ENEMIES):
        if state.enemy_velocity[k] != 0:
            draw_sprite(ENEMY, in_tiles(state.enemy_x[k]), GROUND, canvas)
    draw_sprite(JUMPER if state.held else PLAYER, in_tiles(state.x), in_tiles(state.y), canvas)


def in_tiles(length):
    """Round a length to whole pixels, as agents see it: fractions would show seams between adjacent shapes."""
    return length // PIXEL / SIDE


def draw_background(left, canvas):
    """Draw hills and clouds with parallax: distant ones move along with the player."""
    nearest = int(left / 28)
    for k in range(nearest - 1, nearest + 3):
        x = 14 * k + left / 2
        canvas.disc(x + 4, GROUND - 2, 5, MEADOW)
        canvas.disc(x + 9, GROUND - 2, 3.5, MEADOW)
    nearest = int(left / 36)
    for k in range(nearest - 1, nearest + 4):
        x, y = 9 * k + left * 3 / 4, 10.5 + 1.5 * (k % 2)
        for along, radius in ((0, 0.6), (0.8, 0.9), (1.7, 0.6)):
            canvas.disc(x + along, y, radius, WHITE)


def draw_column(column, height, canvas):
    if height == 0:
        canvas.rectangle(column, 0, column + 1, GROUND, INK)
        return
    canvas.rectangle(column, 0, column + 1, GROUND, WOOD)
    for row in range(GROUND):
        canvas.rectangle(column, row, column + 1, row + 0.1, BARK)
        canvas.rectangle(column + 0.9, row, column + 1, row + 1, BARK)
    canvas.rectangle(column, GROUND - 0.3, column + 1, GROUND, GREEN)
    if height > GROUND:
        canvas.rectangle(column, GROUND, column + 1, height, GREEN)
        canvas.rectangle(column + 0.15, GROUND, column + 0.35, height, MEADOW)
        canvas.rectangle(column, height - 0.4, column + 1, height - 0.3, MOSS)


def draw_flag(canvas):
    canvas.rectangle(FLAG + 0.4, GROUND, FLAG + 0.6, POLE, SLATE)
    canvas.disc(FLAG + 0.5, POLE, 0.25, STONE)
    canvas.polygon([(FLAG + 0.6, POLE - 0.2), (FLAG + 2.4, POLE - 1), (FLAG + 0.6, POLE - 1.8)], RED)


def draw_sprite(lines, x, y, canvas):
    for row, line in enumerate(reversed(lines)):
        for column, mark in enumerate(line):
            if mark in COLORS:
                left, bottom = x + column / SIDE, y + row / SIDE
                canvas.rectangle(left, bottom, left + 1 / SIDE, bottom + 1 / SIDE, COLORS[mark])


def text(state, params):
    """Render ground (#), pipes (H), enemies (x), the flag (F) on its pole (|), and the player (P)."""
    first = min(max(int(state.x) // TILE - WIDE // 3, 0), COLUMNS - WIDE)
    heights = [int(state.height[column]) for column in range(first, first + WIDE)]
    rows = [["." if up >= height else "#" if up < GROUND else "H" for height in heights] for up in range(TALL)]
    things = [(FLAG, up, "F" if up == POLE - 1 else "|") for up in range(GROUND, POLE)]
    alive = [int(x) // TILE for x, velocity in zip(state.enemy_x, state.enemy_velocity, strict=True) if velocity != 0]
    things += [(column, GROUND, "x") for column in alive]
    things += [(int(state.x) // TILE, int(state.y) // TILE, "P")]
    for column, up, letter in things:
        if first <= column < first + WIDE and up >= 0:
            rows[up][column - first] = letter
    return "\n".join("".join(row) for row in reversed(rows))
