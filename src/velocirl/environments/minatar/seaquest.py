"""Seaquest of MinAtar: a submarine shoots fish and other submarines, rescues divers, and must surface for air.

Each hit pays 1. Surfacing with six divers pays for the remaining air, up to 10. With fewer divers it costs one of them,
and with none it ends the episode. An empty tank or any collision ends the episode too. Surfacing refills the tank; with
`ramping`, it also makes enemies more frequent and faster.
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
COLUMN, ROW, RIGHTWARD, WAIT, NUMBERS = range(5)  # fields of a swimming object
BOTTOM = SIZE - 1  # row of the gauges
MOST_ENEMIES, MOST_BULLETS, MOST_DIVERS = 40, 4, 4  # never reached: objects leave the screen before
TANK = 200  # steps that a full tank lasts
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
    # Lists of objects, oldest first, with their lengths.
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
    """Append an object to a list; returns the new length."""
    if count == most:
        return count
    things[count, COLUMN] = column
    things[count, ROW] = row
    things[count, RIGHTWARD] = rightward
    things[count, WAIT] = wait
    return count + 1


def remove(things, count, k):
    """Remove object k from a list; returns the new length."""
    for later in range(k, count - 1):
        for number in range(NUMBERS):
            things[later, number] = things[later + 1, number]
    return count - 1


def find(things, count, column, row):
    """Return the index of the first object at a position, or -1."""
    found = -1
    for k in range(count):
        if found < 0 and things[k, COLUMN] == column and things[k, ROW] == row:
            found = k
    return found


def swim(things, k):
    """Move an object one cell; returns whether it left the screen, in which case it stays at the edge."""
    column = things[k, COLUMN] + (1 if things[k, RIGHTWARD] else -1)
    left = column < 0 or column >= SIZE
    if not left:
        things[k, COLUMN] = column
    return left


def meets(state, things, k):
    """Return whether an object is at the submarine's position."""
    return things[k, COLUMN] == state.column and things[k, ROW] == state.row


def spawn_enemy(state, rng):
    """Spawn a fish or, with probability 1/3, a submarine; none in a row with an object from the other side."""
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


# Objects move from newest to oldest, so that a removal keeps the indices of those still to move.
def move_bullets(state):
    """Move the submarine's bullets; returns the number of hits."""
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
    """Move divers; those that the submarine touches come aboard while there is room."""
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
    """Move an enemy; returns whether it left the screen, was hit by a bullet, or hit the submarine."""
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
    """Move enemy submarines; returns the number hit, and whether one hit the submarine."""
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
    """Let an enemy submarine shoot if it has reloaded."""
    if state.sub_reloads[k] > 0:
        state.sub_reloads[k] -= 1
        return
    state.sub_reloads[k] = ENEMIES_RELOAD
    column, row, rightward = state.subs[k, COLUMN], state.subs[k, ROW], state.subs[k, RIGHTWARD]
    count = state.enemy_bullet_count
    state.enemy_bullet_count = add(state.enemy_bullets, count, MOST_ENEMIES, column, row, rightward, 0)


def move_fish(state):
    """Move fish; returns the number hit, and whether one hit the submarine."""
    hits, lost = 0, False
    for k in range(state.fish_count - 1, -1, -1):
        left, hit, rammed = move_enemy(state, state.fish, k)
        hits += hit
        lost = lost or rammed
        if left or hit:
            state.fish_count = remove(state.fish, state.fish_count, k)
    return hits, lost


def move_enemy_bullets(state):
    """Move enemy bullets; returns whether one hit the submarine."""
    lost = False
    for k in range(state.enemy_bullet_count - 1, -1, -1):
        lost = lost or meets(state, state.enemy_bullets, k)
        if swim(state.enemy_bullets, k):
            state.enemy_bullet_count = remove(state.enemy_bullets, state.enemy_bullet_count, k)
        else:
            lost = lost or meets(state, state.enemy_bullets, k)
    return lost


def surface(state, params):
    """Surface with divers aboard; returns the reward."""
    state.surfaced = True
    reward = 0.0
    if state.crew == CREW:
        state.crew = 0
        reward = float(state.air * SIZE // TANK)
    state.air = TANK
    state.crew -= 1  # as in the package: also after a full crew, so that the next diver does not count
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
    for column in range(SIZE):  # branchless here and below: the processor could not predict a jump
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
