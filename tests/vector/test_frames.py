"""Skipped and stacked frames through every path, against Gymnasium's FrameStackObservation around the plain one."""

import pickle
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from choosing import slow_but
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FrameStackObservation, TimeLimit
from pictures import HEIGHT, KINDS, LIMIT, WIDTH, define, observe_row

import velocirl
from velocirl.engine.fleets.fleet import SAVED

LENGTHS = (1, 2, 5, 6, 9, 12, 40)
SEEDS = [100 + copy for copy in range(len(LENGTHS))]
STEPS = 30
DEVICES = ["python", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


class Skip(gymnasium.Wrapper):
    """Repeats an action; written here once more, as simply as can be."""

    def __init__(self, env, times):
        super().__init__(env)
        self._times = times

    def step(self, action):
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, infos = self.env.step(action)
            total += reward
            if terminated:
                break
        return observation, total, terminated, truncated, infos


def host(array):
    return array.copy_to_host() if hasattr(array, "copy_to_host") else np.asarray(array)


def defined(kind):
    """An environment with frames of its own, and the same without."""
    seen, frames = KINDS[kind]
    return define("Framed-v0", **seen, **frames), define("Plain-v0", **seen, max_steps=None), frames


def oracles(plain, skip=1, stack=1, **params):
    """One environment for each copy, wrapped by Gymnasium."""
    singles = []
    for length in LENGTHS:
        one = Skip(velocirl.make(plain, device="python", **{"length": length, **params}), skip)
        one = TimeLimit(one, LIMIT)
        singles.append(FrameStackObservation(one, stack, padding_type="reset") if stack > 1 else one)
    return singles


def fleet_of(environment, device, mode=AutoresetMode.SAME_STEP, copy=True, **params):
    params = {"length": np.array(LENGTHS), **params}
    return velocirl.make_vec(
        environment, len(LENGTHS), device=device, params=params, autoreset_mode=mode, copy=copy
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", slow_but({"stacked rows", "numbers"}, KINDS))
def test_a_fleet_sees_what_gymnasiums_wrappers_show(kind, device):
    environment, plain, frames = defined(kind)
    fleet, singles = fleet_of(environment, device), oracles(plain, **frames)
    seen, _ = fleet.reset(seed=SEEDS)
    for one, single, seed in zip(host(seen), singles, SEEDS, strict=True):
        np.testing.assert_array_equal(one, single.reset(seed=seed)[0])
    assert fleet.single_observation_space == singles[0].observation_space
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        actions = rng.integers(0, 2, len(LENGTHS))
        *results, infos = fleet.step(actions)
        seen, rewards, terminated, truncated = map(host, results)
        final = host(infos["final_obs"]) if "final_obs" in infos else None
        for copy, single in enumerate(singles):
            expected, reward, ended, cut, _ = single.step(actions[copy])
            assert (rewards[copy], terminated[copy], truncated[copy]) == (reward, ended, cut)
            if ended or cut:
                np.testing.assert_array_equal(final[copy], expected)
                expected, _ = single.reset()
            np.testing.assert_array_equal(seen[copy], expected)


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_autoreset_modes(mode, copied):
    environment, plain, frames = defined("stacked rows")
    fleet, singles = fleet_of(environment, "python", mode, copied), oracles(plain, **frames)
    fleet.reset(seed=SEEDS)
    for single, seed in zip(singles, SEEDS, strict=True):
        single.reset(seed=seed)
    ended = np.zeros(len(LENGTHS), np.bool_)
    for _ in range(STEPS):
        if mode == AutoresetMode.DISABLED and ended.any():
            seen, _ = fleet.reset(options={"reset_mask": ended})
            for copy in np.flatnonzero(ended):
                np.testing.assert_array_equal(seen[copy], singles[copy].reset()[0])
            ended[:] = False
        seen, _, terminated, truncated, _ = fleet.step(np.ones(len(LENGTHS), np.int64))
        for copy, single in enumerate(singles):
            expected = single.reset()[0] if ended[copy] else single.step(1)[0]
            np.testing.assert_array_equal(seen[copy], expected)
        ended = terminated | truncated


def test_one_environment_is_its_own_oracle():
    environment, plain, frames = defined("stacked rows")
    one = velocirl.make(environment, device="python", length=7)
    other = oracles(plain, **frames, length=7)[0]
    for seed in (3, None, None):
        expected, _ = other.reset(seed=seed)
        seen, _ = one.reset(seed=seed)
        np.testing.assert_array_equal(seen, expected)
        ended = False
        while not ended:
            expected, *told, _ = other.step(0)
            seen, *shown, _ = one.step(0)
            np.testing.assert_array_equal(seen, expected)
            assert shown == told
            ended = told[1] or told[2]


@pytest.mark.parametrize("device", DEVICES)
def test_a_reset_in_mid_episode_fills_the_stack_of_those_that_are_chosen(device):
    environment, *_ = defined("whole")
    fleet = fleet_of(environment, device)
    fleet.reset(seed=SEEDS)
    for _ in range(3):
        before, *_ = fleet.step(np.ones(len(LENGTHS), np.int64))
    before = host(before).copy()
    chosen = np.arange(len(LENGTHS)) % 2 == 0
    seen = host(fleet.reset(options={"reset_mask": chosen})[0])
    np.testing.assert_array_equal(seen[~chosen], before[~chosen])
    episodes = host(fleet.copies.state)["episode"]
    for copy in np.flatnonzero(chosen):
        first = (episodes[copy] + 64 * np.arange(HEIGHT)[:, None] + 5 * np.arange(WIDTH)) % 256
        np.testing.assert_array_equal(seen[copy], np.broadcast_to(first, (4, HEIGHT, WIDTH)))


def run(fleet, steps, seed=0):
    """What a fleet shows in some steps, as one list."""
    rng, shown = np.random.default_rng(seed), []
    for _ in range(steps):
        *results, infos = fleet.step(rng.integers(0, 2, len(LENGTHS)))
        shown += [host(one).copy() for one in results]
        if "final_obs" in infos:
            shown.append(host(infos["final_obs"])[host(infos["_final_obs"])])
    return shown


def assert_same(one, other):
    assert len(one) == len(other)
    for expected, got in zip(one, other, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["whole", "stacked rows"])
def test_a_stack_is_saved_and_restored_in_mid_episode(kind, device):
    environment, *_ = defined(kind)
    fleet, other = fleet_of(environment, device), fleet_of(environment, device)
    fleet.reset(seed=SEEDS)
    run(fleet, 4)
    state = fleet.get_state()
    assert set(state) == set(SAVED)
    expected = run(fleet, STEPS, seed=1)
    other.set_state(state)
    assert_same(expected, run(other, STEPS, seed=1))
    fleet.set_state(state)  # and back
    assert_same(expected, run(fleet, STEPS, seed=1))


@pytest.mark.parametrize("carried", [deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("asked", [False, True])
def test_copies_that_are_carried_elsewhere_have_their_stacks(carried, asked):
    environment, *_ = defined("stacked rows")
    if asked:
        environment = define("Asked-v0", observe_row=observe_row)
    frames = {"skip": 2, "stack": 3} if asked else {}
    params = {"length": np.array(LENGTHS), "tint": velocirl.uniform(0, 99)}
    fleet = velocirl.make_vec(environment, len(LENGTHS), device="python", params=params, **frames)
    fleet.reset(seed=SEEDS)
    run(fleet, 4)
    twin = carried(fleet)
    assert twin.environment.stack == 3
    assert_same(run(fleet, STEPS, seed=1), run(twin, STEPS, seed=1))

    one = velocirl.make(environment, device="python", length=20, **frames)
    one.reset(seed=1)
    one.step(0)
    other = carried(one)
    for _ in range(5):
        np.testing.assert_array_equal(one.step(1)[0], other.step(1)[0])


def test_drawn_parameters_are_seen_as_they_were_in_each_frame():
    environment, plain, frames = defined("whole")
    draws = {"length": velocirl.uniform(1, 12), "tint": velocirl.uniform(0, 200)}
    fleet = velocirl.make_vec(environment, len(LENGTHS), device="python", params=draws)
    fleet.reset(seed=SEEDS)
    singles = oracles(plain, **frames, **draws)
    for single, seed in zip(singles, SEEDS, strict=True):
        single.reset(seed=seed)
    for _ in range(STEPS):
        seen, _, terminated, truncated, infos = fleet.step(np.zeros(len(LENGTHS), np.int64))
        for copy, single in enumerate(singles):
            expected = single.step(0)[0]
            if terminated[copy] or truncated[copy]:
                np.testing.assert_array_equal(infos["final_obs"][copy], expected)
                expected, _ = single.reset()
            np.testing.assert_array_equal(seen[copy], expected)


def test_the_user_may_ask_for_frames_and_not_twice():
    plain = define("Plain-v0", observe_row=observe_row)
    fleet = velocirl.make_vec(plain, 2, device="python", skip=2, stack=4)
    assert fleet.single_observation_space.shape == (4, HEIGHT, WIDTH)
    assert plain.observation.shape == plain.frame.shape == (HEIGHT, WIDTH)
    environment = fleet.environment
    assert (environment.skip, environment.stack, environment.frame) == (2, 4, plain.frame)
    assert velocirl.make_vec(environment, 2, device="python").environment is environment
    own = define("Own-v0", observe_row=observe_row, stack=2)
    assert velocirl.make(own, skip=3, device="python").environment.skip == 3
    for asked in (environment, own):
        with pytest.raises(ValueError, match=r"-v0 has stack=\d already: leave stack out"):
            velocirl.make(asked, stack=4)
    with pytest.raises(ValueError, match=r"Plain-v0: skip= must be a whole number from 1, got 0"):
        velocirl.make_vec(plain, 2, skip=0)
    with pytest.raises(ValueError, match=r"FrozenLake-v1: stack=2 stacks arrays, so that observation= must be a Box"):
        velocirl.make("FrozenLake-v1", stack=2)


def test_gymnasium_makes_them_too():
    define("Plain-v0", observe_row=observe_row)
    one = gymnasium.make("velocirl/Plain-v0", stack=2, device="python")
    assert one.reset(seed=0)[0].shape == (2, HEIGHT, WIDTH)


@pytest.mark.parametrize("kind", ["stacked rows", "coloured rows"])
def test_a_checker_is_content_with_them(kind, capsys):
    velocirl.check_env(defined(kind)[0])
    assert "Framed-v0 is sound" in capsys.readouterr().out
