"""Functions of an index, run for a range of indices.

`function(i, r, place, *arguments)` writes what belongs to index i and nothing else, so that no order and no number of
threads can change what comes out; r is the row in which i stands in the block that is under way. Where sums are wanted,
each index writes its own part and a reduction follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.engine.compiler.columns import rows_at


def index_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """`run(arguments, first, stop, place)`: a function of an index, for all indices of a range."""

    def run(arguments, first, stop, place):
        # Unsigned, so that no index needs the test for a negative one, which would prevent vectorisation.
        begin = np.uint64(first)
        for i in range(begin, np.uint64(stop)):
            function(i, i - begin, place, *arguments)
        return 0

    return run


def row_loop(function: Callable[..., Any], head: Any = None) -> Callable[..., Any]:
    """`run(columns, first, stop, place)`: a scalar function of rows, for all rows of a range; see `columns`.

    A function that has a `head` takes it first.
    """

    def run(columns, first, stop, place):
        for i in range(first, stop):
            function(*rows_at(columns, i, i - first, place))
        return 0

    def run_with_head(columns, first, stop, place):
        for i in range(first, stop):
            function(head, *rows_at(columns, i, i - first, place))
        return 0

    return run if head is None else run_with_head
