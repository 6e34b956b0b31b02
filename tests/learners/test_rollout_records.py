"""The records of a rollout on devices that lay them out differently: one layout of files, and one of rings."""

import numpy as np
import pytest

from velocirl import PPO
from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.cpu.device import ThreadsDevice
from velocirl.collect.rollout_records import RolloutRecords

SMALL = {
    "num_envs": 3, "horizon": 4, "minibatch_size": 6, "epochs": 1, "hidden": (4,), "seed": 3, "threads": 1,
    "normalise_observations": True, "normalise_rewards": False,
}  # fmt: skip


@pytest.fixture
def made():
    """Records on CPU threads, by copies, and in the interpreter, by steps; the first of them have numbers."""
    task = PPO("TicTacToe-v1", **SMALL, device="python").task()
    by_copies, by_steps = (RolloutRecords(task, device, 1, 0) for device in (ThreadsDevice(1, 1), PythonDevice()))
    random = np.random.default_rng(0)
    for array in (by_copies.log.returns, by_copies.reward_sums, by_copies.observation_sums):
        array[...] = random.normal(size=array.shape)
    for name in by_copies.records.dtype.names:
        by_copies.records[name] = random.integers(0, 2, by_copies.records[name].shape)
    return by_copies, by_steps


def assert_alike(one, other):
    assert one.records.shape == other.records.shape == (3, 5)
    for name in one.records.dtype.names:
        assert one.records[name].any()
        np.testing.assert_array_equal(one.records[name], other.records[name])
    np.testing.assert_array_equal(one.log.returns, other.log.returns)
    np.testing.assert_array_equal(one.reward_sums, other.reward_sums)
    np.testing.assert_array_equal(one.observation_sums, other.observation_sums)


def test_what_waits_on_one_device_is_read_by_another(made):
    by_copies, by_steps = made
    saved = by_copies.contents()
    assert saved["waiting.records"].shape == (5, 3 * by_copies.records.dtype.itemsize)
    assert by_steps.load_contents(saved)
    assert_alike(by_copies, by_steps)
    again = by_steps.contents()
    assert saved.keys() == again.keys()
    assert all(saved[name].tobytes() == again[name].tobytes() for name in saved)
    by_copies.records[...] = 0
    assert by_copies.load_contents(again)
    assert_alike(by_copies, by_steps)


def test_nothing_is_saved_of_a_rollout_with_a_number_that_is_none(made):
    by_copies, _ = made
    by_copies.log.fault[1] = 7
    assert by_copies.contents() == {}


def test_a_rollout_of_another_size_is_left_aside(made):
    by_copies, _ = made
    task = PPO("TicTacToe-v1", **{**SMALL, "horizon": 5}, device="python").task()
    assert not RolloutRecords(task, PythonDevice(), 1, 0).load_contents(by_copies.contents())


def test_rings_have_the_same_of_both(made):
    by_copies, by_steps = made
    by_steps.load_contents(by_copies.contents())
    for one, other in zip(by_copies.columns(), by_steps.columns(), strict=True):
        assert one.shape == other.shape
        if one.ndim < 3 or one.shape[2] != by_copies.records.dtype.itemsize:  # records have gaps
            np.testing.assert_array_equal(one, other)
    assert by_copies.columns().records.shape == (3, 5, by_copies.records.dtype.itemsize)
