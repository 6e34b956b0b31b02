"""Arrays in memory that processes share: found again by where they are, and given back when nobody needs them."""

import gc
import os

import numpy as np
import pytest

from velocirl.tabular.runtimes.process_memory import SharedMemory, attach

ROW = np.dtype([("state", np.int64), ("values", np.float32, (3,))])


def test_zeros_that_others_see():
    memory = SharedMemory()
    first, second = memory.allocate((1000,), ROW), memory.allocate((3, 5), np.float64)
    assert (first["state"] == 0).all()
    assert (second == 0).all()
    other = attach(memory.descriptor, memory.region(first))
    first["values"][7] = 1.5
    other["state"][8] = 42
    assert other.dtype == ROW
    assert other["values"][7].tolist() == [1.5] * 3
    assert first["state"][8] == 42
    assert (attach(memory.descriptor, memory.region(second)) == 0).all()


def test_an_array_of_nothing():
    memory = SharedMemory()
    assert memory.allocate((0,), np.int64).shape == (0,)
    assert memory.allocate((2,), np.int64).tolist() == [0, 0]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="gives space back on Linux only")
def test_space_is_given_back_but_not_under_a_view():
    memory = SharedMemory()
    array, kept = memory.allocate((1_000_000,), np.float64), memory.allocate((10,), np.int64)
    array[:], kept[:] = 1.0, 7
    used = os.fstat(memory.descriptor).st_blocks * 512
    assert used >= 8_000_000
    view = array[10:20]
    del array
    gc.collect()
    assert view.tolist() == [1.0] * 10
    del view
    gc.collect()
    assert os.fstat(memory.descriptor).st_blocks * 512 < 100_000
    assert kept.tolist() == [7] * 10


def test_the_file_is_closed_with_the_memory_and_arrays_stay():
    memory = SharedMemory()
    descriptor, array = memory.descriptor, memory.allocate((10,), np.int64)
    array[:] = 3
    del memory
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert array.tolist() == [3] * 10
