"""Functions of an index, run for a range of indices.

`function(i, r, place, *arguments)` writes only the data of index i; r is the row of i in the current block. Results
therefore do not depend on the order or the number of threads. For sums, each index writes its own part and a reduction
follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.engine.compiler.columns import rows_at


def index_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `run(arguments, first, stop, place)`, which calls a function of an index for all indices of a range."""

    def run(arguments, first, stop, place):
        # Unsigned, so that no index needs the test for a negative one, which would prevent vectorization.
        begin = np.uint64(first)
        for i in range(begin, np.uint64(stop)):
            function(i, i - begin, place, *arguments)
        return 0

    return run


def row_loop(function: Callable[..., Any], head: Any = None) -> Callable[..., Any]:
    """Make `run(columns, first, stop, place)`, which calls a scalar function for all rows of a range; see `columns`.

    A `head` is passed as the function's first argument.
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
