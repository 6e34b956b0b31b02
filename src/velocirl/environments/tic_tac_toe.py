"""TicTacToe: three in a row against an opponent who plays at random and begins half of the games.

A win pays 1, a draw 0, a loss -1. A mark on a taken cell is illegal and loses the game at once, so that agents that
ignore the mask can learn the rules too. A perfect policy earns 0.960 on average (0.995 when it begins, 0.925 when the
opponent does), a random one that follows the mask 0.
"""

from velocirl import Discrete, Environment, MultiDiscrete, between, int32, random, record
from velocirl.engine.canvas import BLUE, PAPER, RED, STONE

FULL = 0b111_111_111  # a set of cells is a 9-bit number, bit k for cell k, row by row
LINES = (
    *(0b000_000_111, 0b000_111_000, 0b111_000_000),  # rows
    *(0b001_001_001, 0b010_010_010, 0b100_100_100),  # columns
    *(0b100_010_001, 0b001_010_100),  # diagonals
)


@record
class State:
    mine: int32 = between(0, FULL)
    theirs: int32 = between(0, FULL)


def has_line(cells):
    found = False
    for line in LINES:
        found |= cells & line == line
    return found


def count_of(cells):
    """Count the cells of a set: per three neighboring bits, then all."""
    threes = cells - (cells >> 1 & 0b011_011_011) - (cells >> 2 & 0b001_001_001)
    return (threes & 7) + (threes >> 3 & 7) + (threes >> 6)


def random_cell(cells, rng):
    """Sample one of a set of cells uniformly; returns 0 for an empty set."""
    skipped = random.integer(rng, 0, count_of(cells))
    for number in range(8):
        cells = cells & (cells - 1) if number < skipped else cells  # without the lowest cell
    return cells & -cells  # the lowest cell


def reset(state, params, rng):
    state.mine = 0
    state.theirs = 1 << random.integer(rng, 0, 18) & FULL  # the opponent begins in the first 9 of 18 cases


# branchless: the processor could not predict jumps, and without them a fleet plays many games at once
def step(state, params, action, rng):
    cell = 1 << action
    illegal = (state.mine | state.theirs) & cell != 0
    mine = state.mine | cell
    won = has_line(mine)
    reply = random_cell(FULL & ~(mine | state.theirs), rng)  # sampled in any case, played if the game continues
    theirs = state.theirs if won or illegal else state.theirs | reply
    lost = illegal or has_line(theirs)
    state.mine = state.mine if illegal else mine
    state.theirs = theirs
    reward = -1.0 if lost else 1.0 if won else 0.0
    return reward, won or lost or mine | theirs == FULL


def observe(state, params, observation):
    for cell in range(9):
        observation[cell] = (state.mine >> cell & 1) + 2 * (state.theirs >> cell & 1)


def legal(state, params, mask):
    for cell in range(9):
        mask[cell] = 1 - ((state.mine | state.theirs) >> cell & 1)


def draw(state, params, canvas):
    canvas.view(0, 3, 3, 0, width=300, height=300)
    for edge in (1, 2):
        canvas.line(edge, 0.1, edge, 2.9, 0.04, STONE)
        canvas.line(0.1, edge, 2.9, edge, 0.04, STONE)
    for cell in range(9):
        x, y = cell % 3 + 0.5, cell // 3 + 0.5
        if state.mine >> cell & 1:
            canvas.line(x - 0.25, y - 0.25, x + 0.25, y + 0.25, 0.12, BLUE)
            canvas.line(x - 0.25, y + 0.25, x + 0.25, y - 0.25, 0.12, BLUE)
        if state.theirs >> cell & 1:
            canvas.disc(x, y, 0.31, RED)
            canvas.disc(x, y, 0.19, PAPER)


def text(state, params):
    marks = "".join("X" if state.mine >> cell & 1 else "O" if state.theirs >> cell & 1 else "." for cell in range(9))
    return "\n".join((marks[:3], marks[3:6], marks[6:]))


environment = Environment(
    "TicTacToe-v1",
    state=State,
    observation=MultiDiscrete([3] * 9),  # 0 empty, 1 mine, 2 theirs
    action=Discrete(9),
    action_meanings=("1", "2", "3", "4", "5", "6", "7", "8", "9"),
    render_fps=2,
    reset=reset,
    step=step,
    observe=observe,
    legal=legal,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 300_000, "learning_rate": 0.005, "hidden": (128,), "activation": "relu"},
        "dqn": {
            "total_steps": 300_000,
            "learning_rate": 0.001,
            "gamma": 0.97,
            "hidden": (64,),
            "train_every": 2,
            "batch_size": 128,
            "n_step": 3,
            "target_every": 50,
        },
        "tabular": {
            "total_steps": 2_000_000,
            "learning_rate": 0.3,
            "learning_rate_schedule": "linear",
            "gamma": 1.0,
        },
    },
)
