"""Rows of frames on a GPU: each thread draws one where that is fast, and a warp writes them out side by side.

A thread that wrote its row straight to the memory of the fleet would write one number here while its neighbour writes
one a row further on: for each number a transaction of its own. So rows are drawn in the memory that a block of threads
shares, and the threads of a warp write one row after the other together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.engine.fleets.sharing import ended
from velocirl.engine.targets.cuda_kernels import cuda, types
from velocirl.engine.targets.cuda_units import THREADS
from velocirl.engine.targets.warps import WARP

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

MOST_BYTES = 192  # of a row: with more, too few threads have room beside each other


def drawing_in_tiles(environment: Environment) -> Callable[..., Any] | None:
    """`draw(i, r, place, copies)` as `sharing.drawing_newest` has it; None where rows do not fit, or there are none."""
    if environment.observe_row is None:
        return None
    observe_row: Any = environment.observe_row
    shape: Any = environment.frame.shape
    height, width, kind = int(shape[0]), int(shape[1]), np.dtype(environment.frame.dtype)
    room = width_of_tile(width, int(np.prod(shape[2:])) * kind.itemsize)
    if room is None:
        return None
    number, put = getattr(types, kind.name), putting(environment)
    colours = int(shape[2]) if len(shape) == 3 else 0

    def draw_row(copies, copy, y, tile, thread):
        observe_row(copies.state[copy], copies.params[copy], y, tile[thread, :width])

    def write_rows(i, copies, tile, thread):
        """The rows that the threads of a warp drew; those of the last one may be fewer."""
        lane = thread % WARP
        first = np.int64(i) - lane
        lanes = min(WARP, len(copies.elapsed) * height - first)
        cuda.syncwarp(np.uint32((np.uint64(1) << np.uint64(lanes)) - np.uint64(1)))
        for k in range(lanes):
            copy = (first + k) // height
            into = copies.final_observation if ended(copies, copy) else copies.observation
            for x in range(lane, width, lanes):
                put(into, copy, first + k - copy * height, x, tile, thread - lane + k)

    def draw(i, r, place, copies):  # noqa: ARG001 - every function of an index has the same first arguments
        tile = cuda.shared.array((THREADS, room), number)
        thread, copy = cuda.threadIdx.x, i // height
        draw_row(copies, copy, i - copy * height, tile, thread)
        write_rows(i, copies, tile, thread)

    def draw_colours(i, r, place, copies):  # noqa: ARG001
        tile = cuda.shared.array((THREADS, room, colours), number)
        thread, copy = cuda.threadIdx.x, i // height
        draw_row(copies, copy, i - copy * height, tile, thread)
        write_rows(i, copies, tile, thread)

    return draw_colours if colours else draw


def width_of_tile(width: int, size: int) -> int | None:
    """How far rows of so many pixels of this size lie apart, so that threads beside each other meet different banks.

    Banks of the shared memory are words of four bytes: an odd number of them. None where that is too far.
    """
    room = next((one for one in range(width, width + 8) if one * size % 8 == 4), width)
    return room if room * size <= MOST_BYTES else None


def putting(environment: Environment) -> Callable[..., Any]:
    """`put(into, copy, y, x, tile, thread)`: pixel x of row y of the newest frame, as a thread drew it."""
    newest, stacked = environment.stack - 1, environment.stack > 1

    def put(into, copy, y, x, tile, thread):
        into[copy, y, x] = tile[thread, x]

    def put_in_stack(into, copy, y, x, tile, thread):
        into[copy, newest, y, x] = tile[thread, x]

    def put_colours(into, copy, y, x, tile, thread):
        for colour in range(tile.shape[2]):
            into[copy, y, x, colour] = tile[thread, x, colour]

    def put_colours_in_stack(into, copy, y, x, tile, thread):
        for colour in range(tile.shape[2]):
            into[copy, newest, y, x, colour] = tile[thread, x, colour]

    if len(environment.frame.shape or ()) == 3:
        return put_colours_in_stack if stacked else put_colours
    return put_in_stack if stacked else put
