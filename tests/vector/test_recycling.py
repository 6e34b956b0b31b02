"""Copies in memory that is used again, as long as nobody refers to it."""

import copy
import pickle

import numpy as np
import pytest

import velocirl
from velocirl.vector.recycling import LARGE, MOST, Recycler

SOURCE = np.arange(LARGE, dtype=np.uint8)


def address(array):
    return array.__array_interface__["data"][0]


def test_what_somebody_holds_is_left_alone():
    recycler = Recycler()
    held = [recycler.copy(SOURCE + np.uint8(k)) for k in range(MOST + 3)]
    for k, array in enumerate(held):
        np.testing.assert_array_equal(array, SOURCE + np.uint8(k))
    assert len({address(array) for array in held}) == len(held)


@pytest.mark.parametrize("hold", [lambda array: array[3:], memoryview, lambda array: [array], lambda array: array.T])
def test_views_hold_it_too(hold):
    recycler = Recycler()
    held = hold(recycler.copy(SOURCE))
    other = recycler.copy(SOURCE + np.uint8(1))
    first = held[0] if isinstance(held, list) else np.asarray(held)
    assert first.reshape(-1)[-1] == SOURCE[-1]
    assert not np.shares_memory(first, other)


def test_a_tensor_holds_it_too():
    torch = pytest.importorskip("torch")
    recycler = Recycler()
    tensor = torch.from_numpy(recycler.copy(SOURCE))
    recycler.copy(SOURCE + np.uint8(1))
    np.testing.assert_array_equal(tensor.numpy(), SOURCE)


def test_memory_is_used_again():
    recycler = Recycler()
    addresses = {address(recycler.copy(SOURCE)) for _ in range(20)}
    assert len(addresses) == 1
    assert address(recycler.copy(SOURCE.astype(np.float32))) not in addresses


def test_where_only_some_rows_mean_something_those_are_copied():
    recycler, first = Recycler(), SOURCE.reshape(-1, 256)
    second, rows = first + np.uint8(1), np.arange(len(first)) % 5 == 2
    np.testing.assert_array_equal(recycler.copy(first, rows)[rows], first[rows])
    held = recycler.copy(second, rows)
    np.testing.assert_array_equal(held, np.where(rows[:, None], second, first))  # in the memory of the first
    np.testing.assert_array_equal(recycler.copy(first, rows)[rows], first[rows])
    np.testing.assert_array_equal(held[rows], second[rows])


def test_small_arrays_are_copied_as_ever():
    recycler = Recycler()
    assert recycler.copy(SOURCE[:10]).tolist() == SOURCE[:10].tolist()
    assert recycler._kept == {}


def test_a_fleet_gives_screens_that_stay():
    envs = velocirl.make_vec("MinAtarBreakout-v1", 512, seed=0)
    screens, _ = envs.reset()
    assert screens.nbytes >= LARGE
    rollout, copies = [screens], [screens.copy()]
    for _ in range(12):
        screens = envs.step(np.zeros(512, np.int64))[0]
        rollout.append(screens)
        copies.append(screens.copy())
    np.testing.assert_array_equal(rollout, copies)
    del rollout, screens
    used = {address(envs.step(np.zeros(512, np.int64))[0]) for _ in range(20)}
    assert len(used) <= 2  # the last screens of episodes have the same shape
    for twin in (copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))):
        np.testing.assert_array_equal(
            twin.step(np.zeros(512, np.int64))[0], copy.deepcopy(envs).step(np.zeros(512, np.int64))[0]
        )


def changed(screens):
    """What the caller has is the caller's own."""
    screens[...] = 77
    return screens


def test_large_observations_are_written_where_the_caller_gets_them_and_the_fleet_has_its_own():
    actions = np.random.default_rng(0).integers(0, 3, (40, 512))
    lending, copying = (velocirl.make_vec("MinAtarBreakout-v1", 512, seed=0) for _ in range(2))
    assert lending.lends
    copying.lends = False
    for envs in (lending, copying):
        envs.reset()
    for t, action in enumerate(actions):
        given, wanted = lending.step(action), copying.step(action)
        np.testing.assert_array_equal(given[0], wanted[0])
        if t % 10 == 3:
            changed(given[0])
            for name, array in lending.get_state().items():
                np.testing.assert_array_equal(array, copying.get_state()[name], err_msg=name)
        if t % 10 == 6:
            changed(given[0])
            some = {"reset_mask": np.arange(512) % 4 == 0}
            np.testing.assert_array_equal(lending.reset(options=some)[0], copying.reset(options=some)[0])
    changed(given[0])
    twin = copy.deepcopy(lending)
    np.testing.assert_array_equal(twin.copies.observation, copying.copies.observation)
    np.testing.assert_array_equal(twin.step(actions[0])[0], copying.step(actions[0])[0])
