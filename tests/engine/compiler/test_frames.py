"""Frames: arguments as words of memory, read back by compiled functions as they were."""

import ctypes
import struct
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.frames import Frame, dtype_of, packed_reader, packed_words_of, type_of, words_of
from velocirl.engine.compiler.units import bind_unit

PAIR = np.dtype([("left", np.float32), ("right", np.int32)])


class Both(NamedTuple):
    table: Any
    more: Any


class OnDevice:
    """An array as one of a GPU shows itself."""

    def __init__(self, array, dtype=None):
        strides = None if array.flags.c_contiguous else array.strides
        self._array, self.shape, self.dtype = array, array.shape, dtype or array.dtype
        self.__cuda_array_interface__ = {
            "shape": array.shape, "strides": strides, "typestr": array.dtype.str, "version": 3,
            "data": (array.ctypes.data, False),
        }  # fmt: skip


def arguments():
    """Of every kind: arrays of one dimension and of two, with gaps, of records; numbers; tuples within tuples."""
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    pairs = np.zeros(2, PAIR)
    pairs["left"], pairs["right"] = [0.5, 1.5], [7, 8]
    return np.arange(3), Both(table, (table[:, ::2], 2.5)), pairs, 11, np.zeros(12)


def read_all(given, first, stop, place):
    counts, (table, (gaps, half)), pairs, whole, result = given
    result[0] = counts[2]
    result[1] = table[1, 3]
    result[2] = gaps[2, 1]
    result[3] = half
    result[4] = pairs[1].left
    result[5] = pairs[0].right
    result[6] = whole
    result[7] = len(counts)
    result[8] = gaps.shape[1]
    result[9] = table.size
    result[10] = first + stop
    result[11] = place


EXPECTED = [2, 7, 10, 2.5, 1.5, 7, 11, 3, 2, 12, 1, 3]


def test_a_compiled_function_reads_what_lies_in_a_frame():
    given = arguments()
    bind_unit(read_all, given, cpu_translator("test", double=True))(0, 1, 3)
    assert given[-1].tolist() == EXPECTED


def test_a_compiled_function_reads_what_lies_packed_in_a_frame():
    given = arguments()
    read = packed_reader(type_of(given), intrinsic, populate_array)
    inner = numba.njit(read_all)

    @numba.njit
    def run(address):
        inner(read(address), 0, 1, 3)

    words = np.array(packed_words_of(given), np.int64)
    run(words.ctypes.data)
    assert given[-1].tolist() == EXPECTED


def test_the_words_of_an_array_are_its_size_its_memory_its_shape_and_its_strides():
    table = np.zeros((3, 4), np.float32)
    assert words_of(table) == [0, 0, 12, 4, table.ctypes.data, 3, 4, 16, 4]
    assert words_of((7, (table[:, 1], -1))) == [7, 0, 0, 3, 4, table.ctypes.data + 4, 3, 16, -1]
    assert words_of(1.5) == list(struct.unpack("q", struct.pack("d", 1.5)))
    assert words_of(np.int32(5)) == [5]


def test_packed_words_leave_out_what_follows_from_others():
    table = np.zeros((3, 4), np.float32)
    assert packed_words_of(table) == [table.ctypes.data, 3, 4]
    assert packed_words_of(table[:, ::2]) == [table.ctypes.data, 3, 2, 16, 8]
    assert packed_words_of((table[0], 5, (1.5,))) == [table.ctypes.data, 4, 5, *words_of(1.5)]


@pytest.mark.parametrize("value", ["text", True, None, [1, 2], np.float32(1)])
def test_what_is_no_argument_is_refused_by_its_type(value):
    with pytest.raises(TypeError, match=f"a {type(value).__name__} cannot be an argument of a compiled function"):
        words_of((1, value))


@pytest.mark.parametrize("take", [
    lambda array: array, lambda array: array[:, 0], lambda array: array[:, ::2], lambda array: array[0],
], ids=["whole", "a column", "every other", "a row"])  # fmt: skip
def test_an_array_of_a_gpu_has_the_type_and_the_words_of_one_of_the_host(take):
    array = take(np.zeros((3, 4), np.float32))
    assert type_of((OnDevice(array),)) == type_of((array,))
    assert words_of(OnDevice(array)) == words_of(array)
    assert packed_words_of(OnDevice(array)) == packed_words_of(array)


def test_the_type_of_an_array_of_a_gpu_that_is_not_numpys_is_what_its_interface_says():
    class Foreign:
        pass

    assert dtype_of(OnDevice(np.zeros(3, np.int64), Foreign())) == np.int64
    assert dtype_of(OnDevice(np.zeros(3, PAIR))) == PAIR


def test_before_the_words_of_a_frame_lies_its_code():
    frame = Frame((1, 2))
    memory = (ctypes.c_int64 * 3).from_address(frame.address - 8)
    frame.enter(99)
    assert list(memory) == [99, 1, 2]
