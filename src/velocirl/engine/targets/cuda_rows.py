"""Rendering of frame rows on a GPU: each thread draws one row in shared memory, and a warp writes the rows coalesced.

If each thread wrote its row straight to global memory, neighboring threads would write one row apart: one transaction
per number. Rows are therefore drawn in the shared memory of a thread block, and the threads of a warp write one row
after the other together.
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

MOST_BYTES = 192  # of a row: with larger rows, too few threads fit side by side


def drawing_in_tiles(environment: Environment) -> Callable[..., Any] | None:
    """Make `draw(i, r, place, copies)` as in `sharing.drawing_newest`; None without rows or if they do not fit."""
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
        """Write the rows that the threads of a warp drew; the last warp may have fewer."""
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
    """Return the row spacing in pixels so that neighboring threads access different banks; None if it is too large.

    Banks of the shared memory are words of four bytes: the spacing is an odd number of words.
    """
    room = next((one for one in range(width, width + 8) if one * size % 8 == 4), width)
    return room if room * size <= MOST_BYTES else None


def putting(environment: Environment) -> Callable[..., Any]:
    """Make `put(into, copy, y, x, tile, thread)`, which writes pixel x of row y of the newest frame from a tile."""
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
