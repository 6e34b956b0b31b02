"""Platformer: how things move, what a frame pays, that levels can be finished, and how all of it looks."""

from copy import copy
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from any_state import in_any_state
from hypothesis import given, settings
from hypothesis import strategies as st

import velocirl
from velocirl.engine import random
from velocirl.environments.platformer import game, motion, screen
from velocirl.environments.platformer.level import (
    COLUMNS,
    FIRST_OBSTACLE,
    FLAG,
    GROUND,
    GROUND_TOP,
    HARDEST,
    HEIGHT,
    HIGHEST_PIPE,
    LAST_START,
    LEAST_GROUND,
    LENGTH,
    LOWEST_PIPE,
    MOST_ENEMIES,
    NARROWEST_GAP,
    PIPE_WIDTH,
    PIXEL,
    RUN,
    SLOWEST_ENEMY,
    TAKE_OFF,
    TILE,
    WIDEST_GAP,
    WIDTH,
    Params,
    floor_below,
)
from velocirl.environments.platformer.motion import (
    JUMP,
    LEFT,
    NOTHING,
    RIGHT,
    RIGHT_JUMP,
    RIGHT_JUMP_RUN,
    RIGHT_RUN,
    WALK,
)

seeds = st.integers(0, 2**63)
difficulties = st.integers(0, HARDEST)


def settings_with(**given):
    return SimpleNamespace(**{**Params.defaults, **given})


def begun(seed=0, **given):
    """The state at the beginning of an episode, of Python's own numbers and lists, which are quicker to step."""
    state = SimpleNamespace(height=[0] * COLUMNS, enemy_x=[0] * MOST_ENEMIES, enemy_velocity=[0] * MOST_ENEMIES)
    game.reset(state, settings_with(**given), [int(word) for word in random.streams(seed, 1)[0]])
    return state


def flat(column=20, heights=(), enemies=(), **fields):
    """A level of nothing but ground, where it is not said otherwise; the player stands at the left edge of a column."""
    state = begun()
    state.height = [GROUND] * COLUMNS
    for place, height in heights:
        state.height[place] = height
    state.enemy_x, state.enemy_velocity = [0] * MOST_ENEMIES, [0] * MOST_ENEMIES
    for k, (x, velocity) in enumerate(enemies):
        state.enemy_x[k], state.enemy_velocity[k] = x, velocity
    state.x = state.begin = state.farthest = column * TILE
    vars(state).update(fields)
    return state


def frames(state, *actions, **given):
    """Take a frame for each action, until the episode ends: the rewards, and whether it did."""
    rewards, ended = [], False
    for action in actions:
        reward, ended = game.step(state, settings_with(**given), action, None)
        rewards.append(reward)
        if ended:
            break
    return rewards, ended


def picture(state):
    frame = np.full((screen.SIZE, screen.SIZE), 7, np.uint8)
    for y in range(screen.SIZE):
        screen.observe_row(state, None, y, frame[y])
    return frame


# How things move ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "speed"),
    [
        (NOTHING, 0),
        (RIGHT, WALK),
        (RIGHT_JUMP, WALK),
        (RIGHT_RUN, RUN),
        (RIGHT_JUMP_RUN, RUN),
        (JUMP, 0),
        (LEFT, -WALK),
    ],
)
def test_actions_are_directions_speeds_and_jumps(action, speed):
    state = flat()
    frames(state, action)
    assert state.velocity_x == np.sign(speed)
    assert (state.y > GROUND_TOP) == (action in (RIGHT_JUMP, RIGHT_JUMP_RUN, JUMP))
    frames(state, *[action] * 30)
    assert state.velocity_x == speed


def test_a_jump_is_as_high_as_it_is_held():
    peaks = []
    for held in (1, 4, 8, 40):
        state, heights = flat(), []
        for t in range(60):
            frames(state, JUMP if t < held else NOTHING)
            heights.append(state.y - GROUND_TOP)
        peaks.append(max(heights))
        assert heights[-1] == 0
    assert peaks == sorted(set(peaks))
    assert peaks[-1] == sum(range(0, 43, 2))  # from 42 down by 2 a frame
    assert peaks[-1] > HIGHEST_PIPE * TILE


def test_who_holds_the_jump_does_not_jump_again():
    state = flat()
    frames(state, *[JUMP] * 50)
    assert state.y == GROUND_TOP
    frames(state, JUMP)
    assert state.y == GROUND_TOP
    frames(state, NOTHING, JUMP)
    assert state.y == GROUND_TOP + TAKE_OFF


@pytest.mark.parametrize("width", range(NARROWEST_GAP, WIDEST_GAP + 1))
def test_a_running_jump_crosses_every_gap(width):
    state = flat(column=20, heights=[(25 + k, 0) for k in range(width)])
    while state.x < 25 * TILE - 2 * PIXEL:
        frames(state, RIGHT_RUN)
    _, ended = frames(state, *[RIGHT_JUMP_RUN] * 30, *[RIGHT_RUN] * 20)
    assert not ended
    assert state.x > (25 + width) * TILE
    assert state.y == GROUND_TOP


@pytest.mark.parametrize("height", range(LOWEST_PIPE, HIGHEST_PIPE + 1))
def test_a_jump_gets_over_every_pipe(height):
    state = flat(column=20, heights=[(24, GROUND + height), (25, GROUND + height)])
    frames(state, *[RIGHT] * 60)
    assert (state.x + WIDTH) // TILE == 24  # it is a wall
    assert state.velocity_x == 0
    while state.x + WIDTH < 24 * TILE + 2 * PIXEL:
        frames(state, RIGHT_JUMP)
    frames(state, *[NOTHING] * 30)
    assert state.y == (GROUND + height) * TILE  # and can be stood upon
    frames(state, *[RIGHT] * 60)
    assert state.x > 26 * TILE
    assert state.y == GROUND_TOP


def test_a_gap_is_fallen_into_and_its_sides_are_walls():
    state = flat(column=20, heights=[(22, 0), (23, 0)])
    rewards, ended = frames(state, *[RIGHT] * 80)
    assert ended
    assert rewards[-1] < -0.9
    assert state.y <= -HEIGHT
    assert 22 * TILE <= state.x <= 24 * TILE - WIDTH


def test_the_level_ends_on_the_left():
    state = flat(column=1)
    frames(state, *[LEFT] * 40)
    assert (state.x, state.y) == (0, GROUND_TOP)


def test_an_enemy_that_is_touched_kills():
    for enemy in ((22 * TILE, -3), (18 * TILE, 3)):
        rewards, ended = frames(flat(enemies=[enemy]), *[NOTHING] * 100)
        assert ended
        assert rewards[-1] == pytest.approx(-1.002)


def test_an_enemy_that_is_landed_upon_is_gone():
    state = flat(enemies=[(20 * TILE, -1), (40 * TILE, -1)], y=GROUND_TOP + 4 * TILE)
    before = []
    while state.enemy_velocity[0] != 0:
        before.append(state.y)
        assert not frames(state, NOTHING)[1]
    assert GROUND_TOP + TILE // 2 <= state.y < GROUND_TOP + TILE <= before[-1]
    assert state.velocity_y == motion.BOUNCE
    assert state.enemy_velocity[1] == -1
    frames(state, *[NOTHING] * 30)
    assert state.y == GROUND_TOP


def test_enemies_turn_where_the_ground_ends_and_wait_for_the_player():
    pipe, gap = (30, GROUND + 2), (34, 0)
    state = flat(column=28, heights=[pipe, gap], enemies=[(32 * TILE, -3), (60 * TILE, -3)], y=GROUND_TOP + 6 * TILE)
    seen = []
    for _ in range(200):
        state.y = GROUND_TOP + 6 * TILE  # out of their way
        motion.move_enemies(state)
        seen.append(state.enemy_x[0])
    assert min(seen) == 31 * TILE
    assert max(seen) == 33 * TILE
    assert state.enemy_x[1] == 60 * TILE


# What a frame pays ----------------------------------------------------------------------------------------------------


def test_progress_pays_by_the_tile_and_only_beyond_what_was_reached():
    state = flat(velocity_x=WALK)
    rewards, _ = frames(state, *[RIGHT] * 48)
    assert rewards == pytest.approx([0.1 * WALK / TILE] * 48)
    assert sum(rewards) == pytest.approx(0.5)  # five tiles
    assert state.distance == 5.0
    while state.x > 23 * TILE:
        assert frames(state, LEFT)[0] == [-0.002] or state.velocity_x > 0
    while state.x + state.velocity_x < state.farthest:
        assert frames(state, RIGHT)[0] == [-0.002]
    assert frames(state, RIGHT, RIGHT)[0][-1] == pytest.approx(0.1 * WALK / TILE)


def test_progress_is_capped():
    state = flat(velocity_x=RUN)
    assert frames(state, RIGHT_RUN, progress_cap=0.25)[0] == pytest.approx([0.1 * 0.25 / 6])
    assert state.farthest == 20 * TILE + RUN  # what was not paid for is not paid for later
    state.x += 5 * TILE
    assert frames(state, RIGHT_RUN)[0] == pytest.approx([0.1 / 6])


def test_standing_still_costs():
    assert frames(flat(), NOTHING, NOTHING, JUMP, LEFT)[0] == [-0.002] * 4
    assert frames(flat(), NOTHING, idle_reward=-0.5)[0] == [-0.5]


def test_the_flag_pays_and_ends_the_episode():
    state = flat(column=FLAG - 2, velocity_x=RUN)
    rewards, ended = frames(state, *[RIGHT_RUN] * 20)
    assert ended
    assert state.flag
    assert state.x + WIDTH == FLAG * TILE + RUN
    assert rewards[-1] == pytest.approx(5 + 0.1 / 6)
    state = flat(enemies=[(FLAG * TILE, -3)], x=FLAG * TILE - WIDTH, velocity_x=RUN)
    assert frames(state, RIGHT_RUN)[0] == pytest.approx([5 + 0.1 / 6])  # whoever touches it is safe


def test_an_episode_tells_how_far_it_came():
    env = velocirl.make("Platformer-v0", device="python", start=0.8, max_episode_steps=40)
    for seed, action in ((0, RIGHT_RUN), (1, NOTHING)):
        env.reset(seed=seed)
        state, ended = env.copies.state, False
        state["height"], state["enemy_velocity"] = GROUND, 0
        begin = int(state["x"][0])
        while not ended:
            *_, terminated, truncated, infos = env.step(action)
            ended = terminated or truncated
        assert infos["flag"] == (action == RIGHT_RUN)
        assert infos["distance"] == pytest.approx((FLAG - begin / TILE) * infos["flag"], abs=1)


# Levels ---------------------------------------------------------------------------------------------------------------


def runs(heights):
    """(height, first column, columns) of each run of columns that are alike."""
    edges = [0, *(k for k in range(1, COLUMNS) if heights[k] != heights[k - 1]), COLUMNS]
    return [(heights[a], a, b - a) for a, b in pairwise(edges)]


@given(seed=seeds, difficulty=difficulties)
def test_levels_keep_what_they_promise(seed, difficulty):
    state = begun(seed, difficulty=difficulty)
    parts = runs(state.height)
    assert parts[0][0] == parts[-1][0] == GROUND
    assert parts[0][2] >= FIRST_OBSTACLE
    assert parts[-1][1] < FLAG - 4
    for (height, _, width), (following, _, _) in pairwise(parts):
        if height == GROUND:
            assert following != GROUND
            assert width >= LEAST_GROUND - difficulty
        else:
            assert following == GROUND
            assert NARROWEST_GAP <= width <= NARROWEST_GAP + difficulty if height == 0 else width == PIPE_WIDTH
            assert height == 0 or LOWEST_PIPE <= height - GROUND <= min(LOWEST_PIPE + difficulty, HIGHEST_PIPE)
    for x, velocity in zip(state.enemy_x, state.enemy_velocity, strict=True):
        assert velocity in (0, -(SLOWEST_ENEMY + difficulty))
        assert velocity == 0 or state.height[x // TILE] == GROUND


def test_difficulty_makes_levels_harder():
    counts = []
    for difficulty in range(HARDEST + 1):
        levels = [begun(seed, difficulty=difficulty) for seed in range(200)]
        gaps = np.mean([level.height.count(0) for level in levels])
        pipes = np.mean([sum(height - GROUND for height in level.height if height > GROUND) for level in levels])
        enemies = np.mean([np.count_nonzero(level.enemy_velocity) for level in levels])
        counts.append((gaps, pipes, enemies))
    assert (np.diff(counts, axis=0) > 0).all()


@given(seed=seeds, difficulty=difficulties, start=st.floats(0, 1, width=32))
def test_episodes_begin_where_it_is_safe_along_the_level(seed, difficulty, start):
    state = begun(seed, difficulty=difficulty, start=start)
    column = state.x // TILE
    assert state.x == column * TILE == state.begin == state.farthest
    assert min(int(start * COLUMNS), LAST_START) <= column <= LAST_START
    assert state.y == floor_below(state, state.x) == GROUND_TOP
    assert not frames(state, *[NOTHING] * 30)[1]


# Moves of four frames an action, which a search tries in this order.
MOVES = (
    [RIGHT_RUN] * 3,
    [RIGHT_JUMP_RUN] * 9,
    [RIGHT_JUMP_RUN] * 5 + [RIGHT_RUN] * 3,
    [RIGHT_JUMP_RUN] * 2 + [RIGHT_RUN] * 3,
    [RIGHT] * 3,
    [RIGHT_JUMP] * 9,
    [RIGHT_JUMP] * 5,
    [NOTHING] * 4,
    [LEFT] * 4,
    [LEFT] * 8,
    [JUMP] * 8,
)


def moved(state, move):
    """The state after a move and whether the player can go on from there, on or above the ground."""
    state = copy(state)
    state.enemy_x, state.enemy_velocity = state.enemy_x[:], state.enemy_velocity[:]
    for action in move:
        if frames(state, *[action] * 4)[1]:
            return state, False
    return state, state.y >= GROUND_TOP


def can_be_finished(state, patience=3000):
    """Whether a player reaches the flag: a search that goes deep first, and back where it does not get on."""
    waiting, known = [state], set()
    for _ in range(patience):
        if not waiting:
            break
        state, following = waiting.pop(), []
        for move in MOVES:
            after, goes_on = moved(state, move)
            if after.flag:
                return True
            near = [x // 48 for x in after.enemy_x if abs(x - after.x) < motion.AWAKE]
            place = (after.x // 48, after.y // 48, after.velocity_x // 4, after.velocity_y // 8, *near)
            if goes_on and place not in known:
                known.add(place)
                following.append(after)
        waiting += reversed(following)
    return False


@settings(max_examples=4)
@given(seed=seeds, difficulty=difficulties)
def test_every_level_can_be_finished(seed, difficulty):
    assert can_be_finished(begun(seed, difficulty=difficulty))


@pytest.mark.slow
@settings(max_examples=250)
@given(seed=seeds, difficulty=difficulties)
def test_many_levels_can_be_finished(seed, difficulty):
    assert can_be_finished(begun(seed, difficulty=difficulty))


def test_the_search_finds_no_way_where_there_is_none():
    wall = [(40 + k, GROUND + HIGHEST_PIPE + 1) for k in range(2)]
    assert not can_be_finished(flat(column=36, heights=wall), patience=40)


# What is seen ---------------------------------------------------------------------------------------------------------


def whole_level(state):
    """The picture of the whole level, (84, 768), painted thing by thing."""
    sky, size, pixels = screen.SKY, screen.SIZE, LENGTH // PIXEL
    up = np.full((size, pixels), sky, np.uint8)  # from the bottom
    for column, height in enumerate(state.height):
        tile = up[:, 6 * column : 6 * column + 6]
        if height == 0:
            continue
        tile[:12] = screen.BRICK
        tile[[0, 6]] = screen.MORTAR
        tile[:, 5][:12] = screen.MORTAR
        tile[10:12] = screen.GRASS
        tile[12 : 6 * height] = screen.PIPE
        if height > GROUND:
            tile[6 * height - 2 : 6 * height] = screen.RIM
            tile[12 : 6 * height, 1] = screen.GLEAM
    pole = up[12 : 6 * 11, 6 * FLAG :]
    pole[:, 2:4] = screen.STAFF
    for row in range(6):
        pole[-1 - row, 4 : 10 - row] = screen.CLOTH
    figures = [(screen.ENEMY, x, GROUND_TOP) for x, v in zip(state.enemy_x, state.enemy_velocity, strict=True) if v]
    for lines, x, y in (*figures, (screen.JUMPER if state.held else screen.PLAYER, state.x, state.y)):
        for row, line in enumerate(reversed(lines)):
            for column, mark in enumerate(line):
                if mark != "." and 0 <= y // PIXEL + row < size and x // PIXEL + column < pixels:
                    up[y // PIXEL + row, x // PIXEL + column] = screen.LIGHT if mark == "s" else screen.DARK
    return up[::-1]


@settings(max_examples=30)
@given(seed=seeds, difficulty=difficulties, start=st.floats(0, 1, width=32), actions=st.lists(st.integers(0, 6)))
def test_the_picture_is_the_part_of_the_level_around_the_player(seed, difficulty, start, actions):
    state = begun(seed, difficulty=difficulty, start=start)
    frames(state, *np.repeat(actions, 8).tolist())
    left = int(np.clip(state.x // PIXEL - 24, 0, LENGTH // PIXEL - 84))
    np.testing.assert_array_equal(picture(state), whole_level(state)[:, left : left + 84])


def test_the_player_is_drawn_where_it_is():
    sky, dark, light = screen.SKY, screen.DARK, screen.LIGHT
    seen = picture(flat(column=30, y=GROUND_TOP + 10 * PIXEL))
    assert seen[53:62, 23:30].tolist() == [
        [sky] * 7,
        [sky, sky, dark, dark, dark, sky, sky],
        [sky, dark, dark, dark, dark, dark, sky],
        [sky, sky, light, light, light, sky, sky],
        [sky, sky, light, light, light, sky, sky],
        [sky, dark, dark, dark, dark, dark, sky],
        [sky, light, dark, dark, dark, light, sky],
        [sky, sky, dark, dark, dark, sky, sky],
        [sky, sky, dark, sky, dark, sky, sky],
    ]


def test_text_shows_what_is_around_the_player():
    env = velocirl.make("Platformer-v0", device="python", render_mode="ansi")
    env.reset(seed=0)
    state = env.copies.state[0]
    state["height"], state["x"], state["enemy_velocity"] = GROUND, 2 * TILE, 0
    state["height"][[8, 9]], state["height"][[12, 13]] = 0, 4
    state["enemy_x"][0], state["enemy_velocity"][0] = 15 * TILE, -3
    assert env.render().splitlines() == [
        *["." * 24] * 10,
        "............HH..........",
        "..P.........HH.x........",
        *["########..##############"] * 2,
    ]


def test_the_picture_for_people_shows_the_same():
    env = velocirl.make("Platformer-v0", device="python", render_mode="rgb_array")
    env.reset(seed=0)
    state = env.copies.state[0]
    state["height"], state["x"], state["enemy_velocity"] = GROUND, 2 * TILE, 0
    state["height"][[8, 9]], state["height"][[12, 13]] = 0, 4
    seen = env.render()
    assert seen.shape == (336, 576, 3)
    assert tuple(seen[310, 24 * 9]) == (37, 43, 54)  # the pit
    assert tuple(seen[336 - 24 * 3, 24 * 12 + 16]) == (92, 158, 92)  # a pipe


# As it runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_state_that_a_file_may_hold_leads_out_of_the_level():
    rng = np.random.default_rng(0)
    envs = in_any_state("Platformer-v0", 200, rng)
    for _ in range(30):
        envs.step(rng.integers(7, size=200))
        assert envs.environment.state.beyond(envs.copies.state) is None


@pytest.mark.cuda
def test_frames_on_a_gpu_are_those_of_the_cpu():
    params = {"difficulty": velocirl.uniform(0, HARDEST), "start": velocirl.uniform(0, 1)}
    cpu, gpu = (
        velocirl.make_vec("Platformer-v0", 300, seed=3, device=device, params=params) for device in ("cpu", "cuda")
    )
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(gpu.reset()[0].copy_to_host(), cpu.reset()[0])
    ends = 0
    for _ in range(200):
        actions = rng.integers(7, size=300)
        here, there = cpu.step(actions), gpu.step(actions)
        for one, other in zip(here[:4], there[:4], strict=True):
            np.testing.assert_allclose(other.copy_to_host(), one, rtol=1e-6)
        ended = here[2] | here[3]
        ends += ended.sum()
        if ended.any():
            np.testing.assert_array_equal(there[4]["final_obs"].copy_to_host()[ended], here[4]["final_obs"][ended])
    assert ends > 300
