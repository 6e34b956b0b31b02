"""Freeway of MinAtar: lead a chicken across eight lanes of traffic, as often as possible in 2,501 steps.

Each crossing pays 1 and returns the chicken to the bottom, with new speeds and directions of the cars. A car that hits
the chicken also returns it to the bottom. The chicken moves every third step at most. Five planes encode the steps
between a car's moves.
"""

from velocirl import Discrete, Environment, between, clear, int32, random, record
from velocirl.environments.minatar.screen import PPO, SIZE, Params, moved, painter, planes, take, writer

STAY, UP, DOWN = range(3)
CHICKEN, CAR, TRAILS = range(3)  # the trail of a car that waits k steps is in plane TRAILS + k - 1
PLANES = 7
LANES, SLOWEST = 8, 5
COLUMN, BOTTOM = 4, SIZE - 1  # of the chicken
PATIENCE = 3  # steps between two moves of the chicken


@record
class State:
    row: int32 = between(1, SIZE - 1)
    wait: int32 = between(0, PATIENCE)
    place: int32[LANES] = between(0, SIZE - 1)
    course: int32[LANES] = between(-1, 1)
    pause: int32[LANES] = between(1, SLOWEST)
    timer: int32[LANES] = between(0, SLOWEST)
    last_action: int32 = between(0, 2)


def reset(state, params, rng):
    for k in range(LANES):
        state.place[k] = 0
    draw_cars(state, rng)
    state.row = BOTTOM
    state.wait = PATIENCE
    state.last_action = STAY


def draw_cars(state, rng):
    """Sample new speeds and directions; cars keep their positions."""
    for k in range(LANES):
        state.pause[k] = random.integer(rng, 1, SLOWEST + 1)
        state.timer[k] = state.pause[k]
    for k in range(LANES):
        state.course[k] = 1 if random.uniform(rng) > 0.5 else -1


def step(state, params, action, rng):
    action = take(state, params, action, rng)
    if action != STAY and state.wait == 0:
        state.wait = PATIENCE
        state.row = moved(state.row, 1 if action == DOWN else -1, 0, BOTTOM)
    reward = 0.0
    if state.row == 0:
        reward = 1.0
        draw_cars(state, rng)
        state.row = BOTTOM
    for k in range(LANES):
        hit = state.place[k] == COLUMN
        if state.timer[k] == 0:
            state.timer[k] = state.pause[k]
            state.place[k] = (state.place[k] + state.course[k] + SIZE) % SIZE
            hit = hit or state.place[k] == COLUMN
        else:
            state.timer[k] -= 1
        if hit and state.row == k + 1:
            state.row = BOTTOM
    state.wait = max(state.wait - 1, 0)
    return reward, False


def observe(state, params, screen):
    clear(screen)
    screen[state.row, COLUMN, CHICKEN] = 1
    for k in range(LANES):
        place, behind = state.place[k], (state.place[k] - state.course[k] + SIZE) % SIZE
        screen[k + 1, place, CAR] = 1
        screen[k + 1, behind, TRAILS + state.pause[k] - 1] = 1


environment = Environment(
    "MinAtarFreeway-v1",
    state=State,
    params=Params,
    observation=planes(PLANES),
    action=Discrete(3),
    action_meanings=("stay", "up", "down"),
    render_fps=10,
    max_steps=2501,
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(observe, "amber", "red", *["stone"] * SLOWEST),
    text=writer(observe, "Po12345"),
    presets={"ppo": {"total_steps": 5_000_000, **PPO}},
)
