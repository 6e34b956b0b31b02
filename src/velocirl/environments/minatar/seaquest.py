"""Seaquest of MinAtar: a submarine shoots fish and other submarines, rescues divers, and must come up for air.

Each hit pays 1. Coming up with six divers pays for the air that is left, up to 10; with fewer, it costs one of them,
and with none the game, as do an empty tank and whatever hits the submarine. It comes up to fresh air, and with
`ramping` to enemies that are more and faster.
"""

from velocirl import Discrete, Environment, between, bool_, clear, int8, int32, random, record
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

STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
FRONT, BACK, BULLET, TRAIL, ENEMY_BULLET, FISH, SUB, AIR, RESCUED, DIVER, PLANES = range(11)
COLUMN, ROW, RIGHTWARD, WAIT, NUMBERS = range(5)  # of a thing that swims
BOTTOM = SIZE - 1  # where the gauges are
MOST_ENEMIES, MOST_BULLETS, MOST_DIVERS = 40, 4, 4  # never reached: all cross the screen before so many are there
TANK = 200  # steps that it lasts
CREW = 6
FIRST_SPAWN, FIRST_MOVE, FASTEST_MOVE = 20, 5, 2  # steps between two enemies, and between two of their moves
DIVERS_COME, DIVERS_MOVE = 30, 5
RELOADING, ENEMIES_RELOAD = 5, 10


@record
class State:
    row: int32 = between(0, SIZE - 2)
    column: int32 = between(0, SIZE - 1)
    course: int32 = between(-1, 1)
    air: int32 = between(-1, TANK)
    crew: int32 = between(-1000, CREW)
    surfaced: bool_
    # Lists, the oldest first, and how many things each has.
    bullets: int8[MOST_BULLETS, NUMBERS] = between(0, SIZE - 1)
    bullet_count: int32 = between(0, MOST_BULLETS)
    enemy_bullets: int8[MOST_ENEMIES, NUMBERS] = between(0, SIZE - 1)
    enemy_bullet_count: int32 = between(0, MOST_ENEMIES)
    fish: int8[MOST_ENEMIES, NUMBERS] = between(0, SIZE - 1)
    fish_count: int32 = between(0, MOST_ENEMIES)
    subs: int8[MOST_ENEMIES, NUMBERS] = between(0, SIZE - 1)
    sub_reloads: int8[MOST_ENEMIES] = between(0, ENEMIES_RELOAD)
    sub_count: int32 = between(0, MOST_ENEMIES)
    divers: int8[MOST_DIVERS, NUMBERS] = between(0, SIZE - 1)
    diver_count: int32 = between(0, MOST_DIVERS)
    spawn_speed: int32 = between(1, FIRST_SPAWN)
    spawn_timer: int32 = between(0, FIRST_SPAWN)
    diver_timer: int32 = between(0, DIVERS_COME)
    move_speed: int32 = between(FASTEST_MOVE, FIRST_MOVE)
    reload_timer: int32 = between(0, RELOADING)
    ramps: int32 = between(0, FIRST_SPAWN + 2 * FIRST_MOVE)
    last_action: int32 = between(0, 5)


def reset(state, params, rng):
    state.row = 0
    state.column = 5
    state.course = -1
    state.air = TANK
    state.crew = 0
    state.surfaced = True
    state.bullet_count = 0
    state.enemy_bullet_count = 0
    state.fish_count = 0
    state.sub_count = 0
    state.diver_count = 0
    for k in range(MOST_ENEMIES):
        state.sub_reloads[k] = 0
        for number in range(NUMBERS):
            state.enemy_bullets[k, number] = 0
            state.fish[k, number] = 0
            state.subs[k, number] = 0
            if k < MOST_BULLETS:
                state.bullets[k, number] = 0
            if k < MOST_DIVERS:
                state.divers[k, number] = 0
    state.spawn_speed = FIRST_SPAWN
    state.spawn_timer = FIRST_SPAWN
    state.diver_timer = DIVERS_COME
    state.move_speed = FIRST_MOVE
    state.reload_timer = 0
    state.ramps = 0
    state.last_action = STAY


def add(things, count, most, column, row, rightward, wait):
    """Put a thing at the end of a list; gives how many there are now."""
    if count == most:
        return count
    things[count, COLUMN] = column
    things[count, ROW] = row
    things[count, RIGHTWARD] = rightward
    things[count, WAIT] = wait
    return count + 1


def remove(things, count, k):
    """Take thing k out of a list; gives how many are left."""
    for later in range(k, count - 1):
        for number in range(NUMBERS):
            things[later, number] = things[later + 1, number]
    return count - 1


def find(things, count, column, row):
    """The first thing of a list at a place, or -1."""
    found = -1
    for k in range(count):
        if found < 0 and things[k, COLUMN] == column and things[k, ROW] == row:
            found = k
    return found


def swim(things, k):
    """Move a thing one cell; whether it left the screen, where it stays at the edge."""
    column = things[k, COLUMN] + (1 if things[k, RIGHTWARD] else -1)
    left = column < 0 or column >= SIZE
    if not left:
        things[k, COLUMN] = column
    return left


def meets(state, things, k):
    """Whether a thing is where the submarine is."""
    return things[k, COLUMN] == state.column and things[k, ROW] == state.row


def spawn_enemy(state, rng):
    """A fish or, one time in three, a submarine; none in a row where one comes from the other side."""
    rightward = random.uniform(rng) < 1 / 2
    sub = random.uniform(rng) < 1 / 3
    column = 0 if rightward else SIZE - 1
    row = random.integer(rng, 1, SIZE - 1)
    free = True
    for k in range(state.fish_count):
        free = free and (state.fish[k, ROW] != row or state.fish[k, RIGHTWARD] == rightward)
    for k in range(state.sub_count):
        free = free and (state.subs[k, ROW] != row or state.subs[k, RIGHTWARD] == rightward)
    if free and sub:
        count = add(state.subs, state.sub_count, MOST_ENEMIES, column, row, rightward, state.move_speed)
        state.sub_reloads[count - 1] = ENEMIES_RELOAD
        state.sub_count = count
    elif free:
        state.fish_count = add(state.fish, state.fish_count, MOST_ENEMIES, column, row, rightward, state.move_speed)


def spawn_diver(state, rng):
    rightward = random.uniform(rng) < 1 / 2
    row = random.integer(rng, 1, SIZE - 1)
    column = 0 if rightward else SIZE - 1
    state.diver_count = add(state.divers, state.diver_count, MOST_DIVERS, column, row, rightward, DIVERS_MOVE)


def step(state, params, action, rng):
    action = take(state, params, action, rng)
    if state.spawn_timer == 0:
        spawn_enemy(state, rng)
        state.spawn_timer = state.spawn_speed
    if state.diver_timer == 0:
        spawn_diver(state, rng)
        state.diver_timer = DIVERS_COME
    steer(state, action)

    reward = float(move_bullets(state))
    move_divers(state)
    hits, rammed = move_subs(state)
    reward += hits
    shot = move_enemy_bullets(state)
    hits, bitten = move_fish(state)
    reward += hits

    state.spawn_timer = max(state.spawn_timer - 1, 0)
    state.diver_timer = max(state.diver_timer - 1, 0)
    state.reload_timer = max(state.reload_timer - 1, 0)
    lost = rammed or shot or bitten or state.air <= 0
    if state.row > 0:
        state.air -= 1
        state.surfaced = False
    elif not state.surfaced:
        if state.crew == 0:
            lost = True
        else:
            reward += surface(state, params)
    return reward, lost


def steer(state, action):
    if action == FIRE and state.reload_timer == 0:
        count, rightward = state.bullet_count, state.course == 1
        state.bullet_count = add(state.bullets, count, MOST_BULLETS, state.column, state.row, rightward, 0)
        state.reload_timer = RELOADING
    if action in (LEFT, RIGHT):
        state.course = 1 if action == RIGHT else -1
        state.column = moved(state.column, state.course, 0, SIZE - 1)
    state.row = moved(state.row, toward(action, UP, DOWN), 0, SIZE - 2)


# Things move from the newest to the oldest, so that one that goes leaves the others where they are to be found.
def move_bullets(state):
    """The submarine's own; how many hit something."""
    hits = 0
    for k in range(state.bullet_count - 1, -1, -1):
        gone = swim(state.bullets, k)
        if not gone:
            column, row = state.bullets[k, COLUMN], state.bullets[k, ROW]
            fish = find(state.fish, state.fish_count, column, row)
            sub = find(state.subs, state.sub_count, column, row) if fish < 0 else -1
            if fish >= 0:
                state.fish_count = remove(state.fish, state.fish_count, fish)
            if sub >= 0:
                remove_sub(state, sub)
            gone = fish >= 0 or sub >= 0
            hits += gone
        if gone:
            state.bullet_count = remove(state.bullets, state.bullet_count, k)
    return hits


def remove_sub(state, k):
    for later in range(k, state.sub_count - 1):
        state.sub_reloads[later] = state.sub_reloads[later + 1]
    state.sub_count = remove(state.subs, state.sub_count, k)


def move_divers(state):
    """Those whom the submarine meets come aboard, as long as there is room."""
    for k in range(state.diver_count - 1, -1, -1):
        aboard = meets(state, state.divers, k) and state.crew < CREW
        gone = False
        if not aboard:
            if state.divers[k, WAIT] == 0:
                state.divers[k, WAIT] = DIVERS_MOVE
                gone = swim(state.divers, k)
                aboard = not gone and meets(state, state.divers, k) and state.crew < CREW
            else:
                state.divers[k, WAIT] -= 1
        state.crew += aboard
        if aboard or gone:
            state.diver_count = remove(state.divers, state.diver_count, k)


def move_enemy(state, enemies, k):
    """One step of an enemy: whether it left the screen, whether a bullet hit it, whether it hit the submarine."""
    left, hit, rammed = False, False, meets(state, enemies, k)
    if enemies[k, WAIT] > 0:
        enemies[k, WAIT] -= 1
    else:
        enemies[k, WAIT] = state.move_speed
        left = swim(enemies, k)
        if not left:
            if meets(state, enemies, k):
                rammed = True
            else:
                bullet = find(state.bullets, state.bullet_count, enemies[k, COLUMN], enemies[k, ROW])
                hit = bullet >= 0
                if hit:
                    state.bullet_count = remove(state.bullets, state.bullet_count, bullet)
    return left, hit, rammed


def move_subs(state):
    """How many were hit, and whether one hit the submarine."""
    hits, lost = 0, False
    for k in range(state.sub_count - 1, -1, -1):
        left, hit, rammed = move_enemy(state, state.subs, k)
        hits += hit
        lost = lost or rammed
        if not left:  # one that was hit may still shoot
            shoot(state, k)
        if left or hit:
            remove_sub(state, k)
    return hits, lost


def shoot(state, k):
    """A submarine shoots, when it has reloaded."""
    if state.sub_reloads[k] > 0:
        state.sub_reloads[k] -= 1
        return
    state.sub_reloads[k] = ENEMIES_RELOAD
    column, row, rightward = state.subs[k, COLUMN], state.subs[k, ROW], state.subs[k, RIGHTWARD]
    count = state.enemy_bullet_count
    state.enemy_bullet_count = add(state.enemy_bullets, count, MOST_ENEMIES, column, row, rightward, 0)


def move_fish(state):
    """How many were hit, and whether one hit the submarine."""
    hits, lost = 0, False
    for k in range(state.fish_count - 1, -1, -1):
        left, hit, rammed = move_enemy(state, state.fish, k)
        hits += hit
        lost = lost or rammed
        if left or hit:
            state.fish_count = remove(state.fish, state.fish_count, k)
    return hits, lost


def move_enemy_bullets(state):
    """Whether one hit the submarine."""
    lost = False
    for k in range(state.enemy_bullet_count - 1, -1, -1):
        lost = lost or meets(state, state.enemy_bullets, k)
        if swim(state.enemy_bullets, k):
            state.enemy_bullet_count = remove(state.enemy_bullets, state.enemy_bullet_count, k)
        else:
            lost = lost or meets(state, state.enemy_bullets, k)
    return lost


def surface(state, params):
    """Come up with somebody aboard; gives the reward."""
    state.surfaced = True
    reward = 0.0
    if state.crew == CREW:
        state.crew = 0
        reward = float(state.air * SIZE // TANK)
    state.air = TANK
    state.crew -= 1  # as the package has it: after all six as well, so that the next one aboard does not count
    if params.ramping and (state.spawn_speed > 1 or state.move_speed > FASTEST_MOVE):
        if state.move_speed > FASTEST_MOVE and state.ramps % 2 == 1:
            state.move_speed -= 1
        if state.spawn_speed > 1:
            state.spawn_speed -= 1
        state.ramps += 1
    return reward


def observe(state, params, screen):
    clear(screen)
    screen[state.row, state.column, FRONT] = 1
    screen[state.row, (state.column - state.course + SIZE) % SIZE, BACK] = 1
    air = max(state.air, 0) * SIZE // TANK
    for column in range(SIZE):  # without a jump, which the processor could not foresee; so too below
        screen[BOTTOM, column, AIR] = column < air
    for k in range(CREW):
        screen[BOTTOM, BOTTOM - 1 - k, RESCUED] = k < state.crew
    show(screen, state.bullets, state.bullet_count, BULLET)
    show(screen, state.enemy_bullets, state.enemy_bullet_count, ENEMY_BULLET)
    show_with_trails(screen, state.fish, state.fish_count, FISH)
    show_with_trails(screen, state.subs, state.sub_count, SUB)
    show_with_trails(screen, state.divers, state.diver_count, DIVER)


def show(screen, things, count, plane):
    for k in range(count):
        screen[things[k, ROW], things[k, COLUMN], plane] = 1


def show_with_trails(screen, things, count, plane):
    for k in range(count):
        row, column = things[k, ROW], things[k, COLUMN]
        screen[row, column, plane] = 1
        behind = column - 1 if things[k, RIGHTWARD] else column + 1
        seen = 0 <= behind < SIZE
        screen[row, behind if seen else column, TRAIL] |= seen


environment = Environment(
    "MinAtarSeaquest-v1",
    state=State,
    params=RampingParams,
    observation=planes(PLANES),
    action=Discrete(6),
    action_meanings=("stay", "left", "up", "right", "down", "fire"),
    render_fps=10,
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(
        observe, "blue", "sky", "white", "stone", "red", "violet", "orange", "teal", "green", "amber",
    ),
    text=writer(observe, "Aa-'!fsO+d"),
    presets={"ppo": {"total_steps": 30_000_000, **LARGE_PPO}},
)  # fmt: skip
