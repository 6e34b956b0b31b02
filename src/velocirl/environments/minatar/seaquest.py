"""Seaquest of MinAtar: a submarine shoots fish and other submarines, rescues divers, and must come up for air.

Each hit pays 1. Coming up with six divers pays for the air that is left, up to 10; with fewer, it costs one of them,
and with none the game, as do an empty tank and whatever hits the submarine. It comes up to fresh air, and with
`ramping` to enemies that are more and faster.
"""

from velocirl import Discrete, Environment, between, bool_, int8, int32, random, record
from velocirl.environments.minatar.screen import (
    SIZE,
    RampingParams,
    clear,
    moved,
    painter,
    planes,
    take,
    toward,
    writer,
)

STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
FRONT, BACK, BULLET, TRAIL, ENEMY_BULLET, FISH, SUB, AIR, RESCUED, DIVER, PLANES = range(11)
COLUMN, ROW, COURSE, WAIT, RELOADS, NUMBERS = range(6)  # of a thing that swims; its course is 1 or -1
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
    bullets: int8[MOST_BULLETS, NUMBERS] = between(-1, SIZE)
    enemy_bullets: int8[MOST_ENEMIES, NUMBERS] = between(-1, SIZE)
    fish: int8[MOST_ENEMIES, NUMBERS] = between(-1, SIZE)
    subs: int8[MOST_ENEMIES, NUMBERS] = between(-1, SIZE)
    divers: int8[MOST_DIVERS, NUMBERS] = between(-1, SIZE)
    count: int32[PLANES] = between(0, MOST_ENEMIES)  # of the things of a plane: in its list, the oldest first
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
    for plane in range(PLANES):
        state.count[plane] = 0
    for number in range(NUMBERS):
        for k in range(MOST_ENEMIES):
            state.enemy_bullets[k, number] = 0
            state.fish[k, number] = 0
            state.subs[k, number] = 0
        for k in range(MOST_BULLETS):
            state.bullets[k, number] = 0
        for k in range(MOST_DIVERS):
            state.divers[k, number] = 0
    state.spawn_speed = FIRST_SPAWN
    state.spawn_timer = FIRST_SPAWN
    state.diver_timer = DIVERS_COME
    state.move_speed = FIRST_MOVE
    state.reload_timer = 0
    state.ramps = 0
    state.last_action = STAY


def add(things, count, most, column, row, course, wait):
    """Put a thing at the end of a list; gives how many there are now."""
    if count == most:
        return count
    things[count, COLUMN] = column
    things[count, ROW] = row
    things[count, COURSE] = course
    things[count, WAIT] = wait
    things[count, RELOADS] = ENEMIES_RELOAD
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
    """Move a thing one cell; whether it is still on the screen."""
    things[k, COLUMN] += things[k, COURSE]
    return 0 <= things[k, COLUMN] < SIZE


def meets(state, things, k):
    """Whether a thing is where the submarine is."""
    return things[k, COLUMN] == state.column and things[k, ROW] == state.row


def spawn_enemy(state, rng):
    """A fish or, one time in three, a submarine; none in a row where one comes from the other side."""
    course = 1 if random.uniform(rng) < 1 / 2 else -1
    sub = random.uniform(rng) < 1 / 3
    column = 0 if course == 1 else SIZE - 1
    row = random.integer(rng, 1, SIZE - 1)
    free = True
    for k in range(state.count[FISH]):
        free = free and (state.fish[k, ROW] != row or state.fish[k, COURSE] == course)
    for k in range(state.count[SUB]):
        free = free and (state.subs[k, ROW] != row or state.subs[k, COURSE] == course)
    if free and sub:
        state.count[SUB] = add(state.subs, state.count[SUB], MOST_ENEMIES, column, row, course, state.move_speed)
    elif free:
        state.count[FISH] = add(state.fish, state.count[FISH], MOST_ENEMIES, column, row, course, state.move_speed)


def spawn_diver(state, rng):
    course = 1 if random.uniform(rng) < 1 / 2 else -1
    row = random.integer(rng, 1, SIZE - 1)
    column = 0 if course == 1 else SIZE - 1
    state.count[DIVER] = add(state.divers, state.count[DIVER], MOST_DIVERS, column, row, course, DIVERS_MOVE)


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
        count = state.count[BULLET]
        state.count[BULLET] = add(state.bullets, count, MOST_BULLETS, state.column, state.row, state.course, 0)
        state.reload_timer = RELOADING
    if action in (LEFT, RIGHT):
        state.course = 1 if action == RIGHT else -1
        state.column = moved(state.column, state.course, 0, SIZE - 1)
    state.row = moved(state.row, toward(action, UP, DOWN), 0, SIZE - 2)


# Things move from the newest to the oldest, so that one that goes leaves the others where they are to be found.
def move_bullets(state):
    """The submarine's own; how many hit something."""
    hits = 0
    for k in range(state.count[BULLET] - 1, -1, -1):
        gone = not swim(state.bullets, k)
        if not gone:
            column, row = state.bullets[k, COLUMN], state.bullets[k, ROW]
            fish = find(state.fish, state.count[FISH], column, row)
            sub = find(state.subs, state.count[SUB], column, row) if fish < 0 else -1
            if fish >= 0:
                state.count[FISH] = remove(state.fish, state.count[FISH], fish)
            if sub >= 0:
                state.count[SUB] = remove(state.subs, state.count[SUB], sub)
            gone = fish >= 0 or sub >= 0
            hits += gone
        if gone:
            state.count[BULLET] = remove(state.bullets, state.count[BULLET], k)
    return hits


def move_divers(state):
    """Those whom the submarine meets come aboard, as long as there is room."""
    for k in range(state.count[DIVER] - 1, -1, -1):
        aboard = meets(state, state.divers, k) and state.crew < CREW
        gone = False
        if not aboard:
            if state.divers[k, WAIT] == 0:
                state.divers[k, WAIT] = DIVERS_MOVE
                gone = not swim(state.divers, k)
                aboard = not gone and meets(state, state.divers, k) and state.crew < CREW
            else:
                state.divers[k, WAIT] -= 1
        state.crew += aboard
        if aboard or gone:
            state.count[DIVER] = remove(state.divers, state.count[DIVER], k)


def move_enemy(state, enemies, k):
    """One step of an enemy: whether it goes, whether a bullet hit it, and whether it hit the submarine."""
    gone, hit, rammed = False, False, meets(state, enemies, k)
    if enemies[k, WAIT] > 0:
        enemies[k, WAIT] -= 1
    else:
        enemies[k, WAIT] = state.move_speed
        gone = not swim(enemies, k)
        if not gone:
            if meets(state, enemies, k):
                rammed = True
            else:
                bullet = find(state.bullets, state.count[BULLET], enemies[k, COLUMN], enemies[k, ROW])
                hit = bullet >= 0
                if hit:
                    state.count[BULLET] = remove(state.bullets, state.count[BULLET], bullet)
    return gone or hit, hit, rammed


def move_subs(state):
    """How many were hit, and whether one hit the submarine; one that goes may still shoot."""
    hits, lost = 0, False
    for k in range(state.count[SUB] - 1, -1, -1):
        gone, hit, rammed = move_enemy(state, state.subs, k)
        hits += hit
        lost = lost or rammed
        if state.subs[k, RELOADS] == 0:
            state.subs[k, RELOADS] = ENEMIES_RELOAD
            column, row, course = state.subs[k, COLUMN], state.subs[k, ROW], state.subs[k, COURSE]
            count = state.count[ENEMY_BULLET]
            state.count[ENEMY_BULLET] = add(state.enemy_bullets, count, MOST_ENEMIES, column, row, course, 0)
        else:
            state.subs[k, RELOADS] -= 1
        if gone:
            state.count[SUB] = remove(state.subs, state.count[SUB], k)
    return hits, lost


def move_fish(state):
    """How many were hit, and whether one hit the submarine."""
    hits, lost = 0, False
    for k in range(state.count[FISH] - 1, -1, -1):
        gone, hit, rammed = move_enemy(state, state.fish, k)
        hits += hit
        lost = lost or rammed
        if gone:
            state.count[FISH] = remove(state.fish, state.count[FISH], k)
    return hits, lost


def move_enemy_bullets(state):
    """Whether one hit the submarine."""
    lost = False
    for k in range(state.count[ENEMY_BULLET] - 1, -1, -1):
        lost = lost or meets(state, state.enemy_bullets, k)
        if not swim(state.enemy_bullets, k):
            state.count[ENEMY_BULLET] = remove(state.enemy_bullets, state.count[ENEMY_BULLET], k)
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
    clear(screen, PLANES)
    screen[state.row, state.column, FRONT] = 1
    screen[state.row, (state.column - state.course + SIZE) % SIZE, BACK] = 1
    for column in range(max(state.air, 0) * SIZE // TANK):
        screen[BOTTOM, column, AIR] = 1
    for k in range(state.crew):
        screen[BOTTOM, BOTTOM - 1 - k, RESCUED] = 1
    show(screen, state.bullets, state.count[BULLET], BULLET)
    show(screen, state.enemy_bullets, state.count[ENEMY_BULLET], ENEMY_BULLET)
    show_with_trails(screen, state.fish, state.count[FISH], FISH)
    show_with_trails(screen, state.subs, state.count[SUB], SUB)
    show_with_trails(screen, state.divers, state.count[DIVER], DIVER)


def show(screen, things, count, plane):
    for k in range(count):
        screen[things[k, ROW], things[k, COLUMN], plane] = 1


def show_with_trails(screen, things, count, plane):
    show(screen, things, count, plane)
    for k in range(count):
        behind = things[k, COLUMN] - things[k, COURSE]
        if 0 <= behind < SIZE:
            screen[things[k, ROW], behind, TRAIL] = 1


environment = Environment(
    "MinAtarSeaquest-v1",
    state=State,
    params=RampingParams,
    observation=planes(PLANES),
    action=Discrete(6),
    reset=reset,
    step=step,
    observe=observe,
    draw=painter(
        observe, "blue", "sky", "white", "stone", "red", "violet", "orange", "teal", "green", "amber",
    ),
    text=writer(observe, "Aa-'!fsO+d"),
)  # fmt: skip
