"""Argument frames: a compiled function's arguments as words of memory, in numba's layout.

A function called by address takes the address of its arguments instead of the arguments, so that one driver can call
functions of any type. An array is seven or more words (its memory, shape and strides), a tuple its members in sequence,
a record the address of its row.
"""

from __future__ import annotations

import struct
from typing import Any

import numba
import numba.np.numpy_support
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


class Frame:
    """Arguments in memory, and references that keep that memory alive.

    The word before them is the address of the code to call with them.
    """

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self._words: NDArray[np.int64] = np.array([0, *words_of(arguments)], np.int64)
        self.address = int(self._words.ctypes.data) + 8

    def enter(self, code: int) -> None:
        """Set the code that is called with these arguments."""
        self._words[0] = code

    def redirect(self, array: NDArray[Any], into: NDArray[Any]) -> None:
        """Replace an array's address in the frame by another array of the same type, which the caller keeps alive."""
        self._words[self._words == array.ctypes.data] = into.ctypes.data


def words_of(value: Any) -> list[int]:
    """Return the words of a value: an array, a record, an integer, a double, or a tuple of those."""
    if isinstance(value, np.ndarray):
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
    if hasattr(value, "__cuda_array_interface__"):
        return _words_on_device(value)
    if isinstance(value, tuple):
        return [word for member in value for word in words_of(member)]
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return [int(value)]
    if isinstance(value, float):
        return list(struct.unpack("q", struct.pack("d", value)))
    raise TypeError(f"a {type(value).__name__} cannot be an argument of a compiled function")


def _words_on_device(value: Any) -> list[int]:
    interface, dtype = value.__cuda_array_interface__, dtype_of(value)
    shape, strides = interface["shape"], interface["strides"] or _packed(interface["shape"], dtype.itemsize)
    return [0, 0, int(np.prod(shape)), dtype.itemsize, interface["data"][0], *shape, *strides]


def type_of(value: Any) -> Any:
    """Return the type of arguments, for which a function is compiled."""
    if isinstance(value, tuple):
        return types.BaseTuple.from_types([type_of(one) for one in value], type(value))
    if hasattr(value, "__cuda_array_interface__"):
        interface, dtype = value.__cuda_array_interface__, dtype_of(value)
        packed = interface["strides"] in (None, _packed(interface["shape"], dtype.itemsize))
        return types.Array(numba.from_dtype(dtype), len(interface["shape"]), "C" if packed else "A")
    return numba.typeof(value)


def dtype_of(array: Any) -> np.dtype[Any]:
    """Return the element type of a GPU array."""
    dtype = array.dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(array.__cuda_array_interface__["typestr"])


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a contiguous array."""
    return tuple(int(itemsize * np.prod(shape[k + 1 :])) for k in range(len(shape)))


def reader(kind: Any, intrinsic: Any = intrinsic) -> Any:
    """Return `read(address)`, which loads the tuple of this type at an address; compiled with `intrinsic`."""

    @intrinsic
    def read(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            return builder.load(pointer)

        return kind(types.int64), generate

    return read


# On a GPU every launch fetches every word of a frame, so only words that cannot be derived are sent.


def packed_words_of(value: Any) -> list[int]:
    """Return the words of a value without derivable ones: for an array its address, shape, and any non-C strides."""
    if isinstance(value, tuple):
        return [word for member in value for word in packed_words_of(member)]
    if not hasattr(value, "shape") or not hasattr(value, "dtype") or isinstance(value, np.generic):
        return words_of(value)
    kind, words = type_of(value), words_of(value)
    return words[4 : 5 + kind.ndim * (1 if kind.layout == "C" else 2)]


def packed_reader(kind: Any, intrinsic: Any, populate_array: Any) -> Any:
    """Return `read(address)`, which loads the tuple of this type from packed words, for a compiler's functions."""

    @intrinsic
    def read(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            words = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
            return _unpack(context, builder, kind, words, 0, populate_array)[0]

        return kind(types.int64), generate

    return read


def _unpack(context: Any, builder: Any, kind: Any, words: Any, place: int, populate_array: Any) -> tuple[Any, int]:
    """Return the value of a type whose words begin at index `place`, and the index after them."""

    def word(number: int) -> Any:
        return builder.load(builder.gep(words, [ir.Constant(ir.IntType(32), number)]))

    if isinstance(kind, types.BaseTuple):
        members = []
        for one in kind.types:  # pyright: ignore[reportAttributeAccessIssue]
            member, place = _unpack(context, builder, one, words, place, populate_array)
            members.append(member)
        return context.make_tuple(builder, kind, members), place
    if not isinstance(kind, types.Array):
        value = word(place)
        return (builder.bitcast(value, ir.DoubleType()) if kind == types.float64 else value), place + 1
    itemsize = ir.Constant(ir.IntType(64), numba.np.numpy_support.as_dtype(kind.dtype).itemsize)
    array = context.make_array(kind)(context, builder)
    shape = [word(place + 1 + k) for k in range(kind.ndim)]
    if kind.layout == "C":
        strides = [itemsize]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
    else:
        strides = [word(place + 1 + kind.ndim + k) for k in range(kind.ndim)]
    data = builder.inttoptr(word(place), array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None, parent=None)
    return array._getvalue(), place + 1 + kind.ndim * (1 if kind.layout == "C" else 2)
