"""A fleet behind Gymnasium's vector interface: spaces, seeds, resets, saved states, reports."""

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

import velocirl
from velocirl import float32, int32, record
from velocirl.engine import random, registry


@record
class Runner:
    value: float32
    laps: int32
    track: float32[2]


def run(state, params, action, rng):
    state.laps += 1
    state.value = 0.5 * state.laps
    return state.value, state.laps == 3


def start(state, params, rng):
    state.laps = 0
    state.value = 0.0
    state.track[:] = 0.0


def make(copies=5, name="CartPole-v1", seed=1, **options):
    envs = velocirl.make_vec(name, copies, seed=seed, **options)
    return envs, envs.reset()[0]


def test_it_is_a_vector_environment_with_gymnasiums_batched_spaces():
    for name in velocirl.list_envs():
        if not registry.find(name).source.startswith(registry.BUILT_IN):
            continue  # of other tests, for which it would have to be compiled
        envs = velocirl.make_vec(name, 3)
        assert isinstance(envs, VectorEnv)
        assert envs.num_envs == 3
        assert envs.observation_space == batch_space(envs.single_observation_space, 3)
        assert envs.action_space == batch_space(envs.single_action_space, 3)
        seen, _ = envs.reset(seed=1)
        assert envs.observation_space.contains(seen)
        seen, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(seen)
        assert (rewards.dtype, rewards.shape) == (np.float32, (3,))
        assert (terminated.dtype, terminated.shape) == (np.bool_, (3,))
        assert (truncated.dtype, truncated.shape) == (np.bool_, (3,))
        assert isinstance(infos, dict)


def test_a_reset_without_a_seed_goes_on_with_the_streams():
    envs, first = make()
    second, _ = envs.reset()
    assert not np.isin(second, first).any()
    again, _ = envs.reset(seed=1)
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(envs.reset()[0], second)


def test_the_seed_of_make_vec_is_the_seed_of_the_first_reset():
    _, first = make(seed=7)
    envs = velocirl.make_vec("CartPole-v1", 5)
    np.testing.assert_array_equal(envs.reset(seed=7)[0], first)


def test_without_any_seed_two_fleets_differ():
    (_, one), (_, other) = make(seed=None), make(seed=None)
    assert not np.isin(one, other).any()


def test_a_list_of_seeds_seeds_each_copy_by_itself():
    _, seen = make(3, seed=[7, 8, 7])
    np.testing.assert_array_equal(seen[0], seen[2])
    for row, seed in zip(seen, (7, 8, 7), strict=True):
        np.testing.assert_array_equal(row, make(1, seed=seed)[1][0])


def test_copies_of_a_small_fleet_live_through_the_same_in_a_large_one():
    _, few = make(3, seed=9)
    _, many = make(1000, seed=9)
    np.testing.assert_array_equal(few, many[:3])


@pytest.mark.parametrize("seed", [[1, 2], [1, 2, 3, 4, 5, 6], []])
def test_a_wrong_number_of_seeds_is_refused(seed):
    with pytest.raises(ValueError, match=f"one for each of 5 copies; got {len(seed)}"):
        make(seed=seed)


@pytest.mark.parametrize("seed", [0, 2**64 - 1, np.int64(5), np.uint8(5)])
def test_any_whole_number_of_64_bits_is_a_seed(seed):
    envs, _ = make(2, seed=seed)
    fresh = random.streams(int(seed), 2)
    assert np.unique(fresh).size == 4
    np.testing.assert_array_equal(make(2, seed=int(seed))[0].copies.rng, envs.copies.rng)


def test_a_reset_mask_resets_just_those_copies():
    envs, _ = make(4, seed=2)
    for _ in range(3):
        seen = envs.step(np.ones(4, int))[0]
    chosen = np.array([True, False, False, True])
    after, _ = envs.reset(options={"reset_mask": chosen})
    np.testing.assert_array_equal(after[~chosen], seen[~chosen])
    assert (np.abs(after[chosen]) <= 0.05).all()
    assert not np.isin(after[chosen], seen[chosen]).any()
    np.testing.assert_array_equal(envs.copies.elapsed, [0, 3, 3, 0])


def test_a_seed_with_a_reset_mask_seeds_just_those_copies():
    envs, first = make(4, seed=2)
    envs.reset()
    streams = envs.copies.rng.copy()
    chosen = np.array([False, True, False, False])
    seen, _ = envs.reset(seed=2, options={"reset_mask": chosen})
    np.testing.assert_array_equal(seen[1], first[1])
    np.testing.assert_array_equal(envs.copies.rng[~chosen], streams[~chosen])


def test_run_randomly_begins_by_itself_and_takes_that_many_steps():
    envs = velocirl.make_vec("CartPole-v1", 4, seed=3)
    envs.run_randomly(5)
    np.testing.assert_array_equal(envs.copies.elapsed, 5)
    envs.run_randomly(0)
    np.testing.assert_array_equal(envs.copies.elapsed, 5)


def test_running_in_one_go_is_running_step_by_step():
    (one, _), (other, _) = make(33, seed=4), make(33, seed=4)
    one.run_randomly(100)
    for _ in range(100):
        other.run_randomly(1)
    for name, array in one.get_state().items():
        np.testing.assert_array_equal(array, other.get_state()[name])


def test_a_saved_state_is_a_copy():
    envs, _ = make()
    saved = envs.get_state()
    before = {name: array.copy() for name, array in saved.items()}
    envs.run_randomly(10)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, before[name])
    envs.set_state(saved)
    envs.run_randomly(10)
    np.testing.assert_array_equal(saved["rng"], before["rng"])


def test_a_state_of_a_fleet_in_plain_python_fits_a_compiled_one():
    (plain, _), (compiled, _) = make(seed=5, device="python"), make(seed=6)
    plain.run_randomly(5)
    np.testing.assert_array_equal(compiled.set_state(plain.get_state()), plain.copies.observation)
    np.testing.assert_array_equal(compiled.copies.rng, plain.copies.rng)


def test_a_set_state_stands_for_a_reset():
    saved = make()[0].get_state()
    fresh = velocirl.make_vec("CartPole-v1", 5)
    fresh.set_state(saved)
    np.testing.assert_array_equal(fresh.step(np.ones(5, int))[0], make()[0].step(np.ones(5, int))[0])


def without(saved, name):
    return {key: array for key, array in saved.items() if key != name}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda saved: without(saved, "rng"), "the state has no array 'rng'"),
        (lambda saved: {**saved, "extra": saved["rng"]}, "the state has an array 'extra'"),
        (lambda saved: {**saved, "rng": saved["rng"][:4]}, r"rng is uint64 \(4, 2\), and must be uint64 \(5, 2\)"),
        (lambda saved: {**saved, "elapsed": saved["elapsed"].astype(np.int64)}, r"elapsed is int64 .*must be int32"),
        (lambda saved: {**saved, "state": saved["params"]}, "state is"),
        (lambda saved: make(6)[0].get_state(), r"\(6,\)"),
        (lambda saved: make(5, "Pendulum-v1")[0].get_state(), "angular_velocity"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, message):
    envs, _ = make()
    envs.run_randomly(3)
    before = envs.get_state()
    with pytest.raises(ValueError, match=message):
        envs.set_state(spoil(make()[0].get_state()))
    for name, array in envs.get_state().items():
        np.testing.assert_array_equal(array, before[name])


def test_reported_fields_are_those_of_the_end_of_the_episode(define):
    envs = velocirl.make_vec(define(state=Runner, reset=start, step=run, report=("laps", "value")), 2, seed=1)
    envs.reset()
    for _ in range(2):
        assert envs.step(np.zeros(2, int))[4] == {}
    infos = envs.step(np.zeros(2, int))[4]["final_info"]
    expected = {"r": [3.0, 3.0], "l": [3, 3], "laps": [3, 3], "value": [1.5, 1.5]}
    assert {name: array.tolist() for name, array in infos["episode"].items()} == expected
    np.testing.assert_array_equal(envs.copies.state["laps"], 0)


def test_a_single_environment_reports_plain_numbers(define):
    env = velocirl.make(define(state=Runner, reset=start, step=run, report=("laps",)))
    env.reset(seed=1)
    env.step(0)
    env.step(0)
    infos = env.step(0)[4]
    assert infos == {"laps": 3}
    assert type(infos["laps"]) is int


def test_closing_twice_is_harmless_and_ends_nothing_else():
    one, _ = make()
    other, _ = make()
    one.close()
    one.close()
    assert one.closed
    assert not other.closed
