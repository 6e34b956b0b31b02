"""The grid worlds: FrozenLake and CliffWalking against Gymnasium's transition tables, GridWorld against its map."""

from collections import deque
from typing import Any, cast

import gymnasium
import numpy as np
import pytest

import velocirl
from velocirl.engine import random
from velocirl.engine.canvas import BLUE, GREEN, INK, PAPER, RED, SKY, SLATE
from velocirl.environments import cliff_walking, frozen_lake, grid_world

# Random streams whose first draw is a slip to one side, none, and to the other: the order of Gymnasium's tables.
SLIPS = [
    next(stream for stream in random.streams(0, 100) if random.integer(stream.copy(), -1, 2) == slip)
    for slip in (-1, 0, 1)
]


def make(name, **options) -> Any:
    """An environment in plain Python, whose state a test can set."""
    return velocirl.make(name, device="python", **options)


def move(env, row, column, action, stream=None):
    """One step from a given cell: (next cell, reward, terminated)."""
    env.reset()
    env.copies.state["row"], env.copies.state["column"] = row, column
    if stream is not None:
        env.copies.rng[0] = stream
    observation, reward, terminated, _, _ = env.step(action)
    return observation, reward, terminated


@pytest.mark.parametrize("is_slippery", [False, True])
@pytest.mark.parametrize(
    ("environment", "columns"),
    [(frozen_lake.environment, 4), (frozen_lake.large_environment, 8), (cliff_walking.environment, 12)],
    ids=lambda value: getattr(value, "id", ""),
)
def test_every_transition_equals_gymnasium(environment, columns, is_slippery):
    table = cast(Any, gymnasium.make(environment.id, is_slippery=is_slippery).unwrapped).P
    env = make(environment, is_slippery=is_slippery)
    compared = 0
    for cell, actions in table.items():
        row, column = divmod(cell, columns)
        for action, outcomes in actions.items():
            if outcomes == [(1.0, cell, 0, True)]:  # a hole or the goal of the lake: the episode is over there
                continue
            assert [probability for probability, *_ in outcomes] == pytest.approx([1 / len(outcomes)] * len(outcomes))
            for (_, *expected), stream in zip(outcomes, SLIPS, strict=is_slippery):
                assert list(move(env, row, column, action, stream)) == expected
                compared += 1
    cells = {4: 11, 8: 53, 12: 48}[columns]
    assert compared == cells * 4 * (3 if is_slippery else 1)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1"])
def test_spaces_start_and_time_limit_equal_gymnasium(name):
    theirs = cast(Any, gymnasium.make(name))
    ours = make(name)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.reset(seed=0)[0] == theirs.reset(seed=0)[0]
    assert ours.environment.max_steps == (theirs.spec.max_episode_steps or 1000)


def test_frozen_lake_slips_to_each_side_a_third_of_the_time():
    env = make("FrozenLake-v1")
    env.reset(seed=1)
    cells = [int(move(env, 2, 1, frozen_lake.DOWN)[0]) for _ in range(6000)]
    counts = np.bincount(cells, minlength=16)
    assert counts[[8, 10, 13]].sum() == 6000  # left, right, down
    assert counts[[8, 10, 13]] == pytest.approx(2000, abs=150)  # four standard deviations


def test_frozen_lake_takes_another_map():
    lake = frozen_lake.tiles("SHFF", "FFFF", "FFFF", "FFGF")
    env = make("FrozenLake-v1", is_slippery=False, tiles=lake)
    assert move(env, 0, 0, frozen_lake.RIGHT) == (1, 0.0, True)
    assert move(env, 3, 1, frozen_lake.RIGHT) == (14, 1.0, True)
    assert move(env, 1, 0, frozen_lake.RIGHT) == (5, 0.0, False)


def test_cliff_walking_shortest_path_earns_minus_13():
    env = make("CliffWalking-v1")
    env.reset(seed=0)
    path = [cliff_walking.UP] + [cliff_walking.RIGHT] * 11 + [cliff_walking.DOWN]
    steps = [env.step(action) for action in path]
    assert [terminated for _, _, terminated, _, _ in steps] == [False] * 12 + [True]
    assert (len(steps), sum(step[1] for step in steps)) == (13, -13.0)


def test_grid_world_steps_cost_walls_block_and_the_goal_pays():
    env = make("GridWorld-v0", step_cost=0.25, goal_reward=2.0)
    assert move(env, 1, 0, grid_world.UP) == (0, -0.25, False)
    assert move(env, 0, 0, grid_world.UP) == (0, -0.25, False)  # the edge
    assert move(env, 0, 0, grid_world.LEFT) == (0, -0.25, False)
    assert move(env, 1, 0, grid_world.RIGHT) == (5, -0.25, False)  # a wall
    assert move(env, 1, 0, grid_world.DOWN) == (10, -0.25, False)
    assert move(env, 3, 4, grid_world.RIGHT) == (19, -0.25, False)  # the other edge
    assert move(env, 3, 4, grid_world.DOWN) == (24, 1.75, True)


def test_grid_world_starts_evenly_on_free_cells():
    env = make("GridWorld-v0")
    env.reset(seed=2)
    starts = np.bincount([env.reset()[0] for _ in range(3600)], minlength=25)
    free = [cell for cell, tile in enumerate("".join(grid_world.ROOM)) if tile == "."]
    assert set(np.flatnonzero(starts)) == set(free)
    assert starts[free] == pytest.approx(200, abs=60)  # four standard deviations


def test_grid_world_perfect_policy_earns_what_its_docstring_says():
    env = make("GridWorld-v0")
    moves = {cell: [move(env, *divmod(cell, 5), action)[0] for action in range(4)] for cell in range(24)}
    steps, queue = {24: 0}, deque([24])
    while queue:
        goal = queue.popleft()
        for cell, reached in moves.items():
            if grid_world.ROOM[cell // 5][cell % 5] == "." and cell not in steps and goal in reached:
                steps[cell] = steps[goal] + 1
                queue.append(cell)
    assert len(steps) == 19  # every free cell leads to the goal
    mean = sum(steps.values()) / 18
    assert f"{mean:.2f} steps and earns {1 - 0.01 * mean:.3f}" in (grid_world.__doc__ or "")


def test_text_shows_the_map_and_the_walker():
    texts = {name: [] for name in ("FrozenLake-v1", "CliffWalking-v1", "GridWorld-v0")}
    for name in texts:
        env = make(name, render_mode="ansi")
        env.reset(seed=0)
        env.copies.state["row"], env.copies.state["column"] = 2, 3
        texts[name] = env.render().split("\n")
    assert texts["FrozenLake-v1"] == ["SFFF", "FHFH", "FFF@", "HFFG"]
    assert texts["CliffWalking-v1"] == ["............", "............", "...@........", "SCCCCCCCCCCG"]
    assert texts["GridWorld-v0"] == [".....", ".##..", ".#.@.", "...#.", ".#.#G"]


@pytest.mark.parametrize(
    ("name", "cells", "tiles"),
    [
        ("FrozenLake-v1", (4, 4), {(1, 1): BLUE, (0, 1): SKY, (2, 0): RED}),
        ("FrozenLake8x8-v1", (8, 8), {(2, 3): BLUE, (0, 1): SKY, (2, 0): RED}),
        ("CliffWalking-v1", (4, 12), {(3, 5): INK, (3, 11): GREEN, (0, 5): PAPER, (2, 0): RED}),
        ("GridWorld-v0", (5, 5), {(1, 1): SLATE, (4, 4): GREEN, (0, 1): PAPER, (2, 0): RED}),
    ],
)
def test_picture_shows_each_tile_and_the_walker(name, cells, tiles):
    env = make(name, render_mode="rgb_array")
    env.reset(seed=0)
    env.copies.state["row"], env.copies.state["column"] = 2, 0
    picture = env.render()
    size = picture.shape[0] // cells[0]
    assert picture.shape == (cells[0] * size, cells[1] * size, 3)
    for (row, column), color in tiles.items():
        assert tuple(picture[size * row + size // 2, size * column + size // 2]) == color, (row, column)
