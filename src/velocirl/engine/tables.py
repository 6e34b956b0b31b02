"""Lookup tables in scalar functions: a pump curve or a valve characteristic, interpolated between its points."""

from typing import Any


def lookup(table: Any, x: Any) -> Any:
    """Interpolate linearly in a table of rows (x, y), an array of the module with x ascending; like `numpy.interp`.

    Beyond the ends of the table, the end values hold. The sum over segments has no branch and no index that depends on
    `x`. A step with a short table is therefore vectorized over environments, and costs the same in all of them.
    """
    y = table[0, 1]
    for k in range(table.shape[0] - 1):
        left, right = table[k, 0], table[k + 1, 0]
        y += (min(max(x, left), right) - left) / (right - left) * (table[k + 1, 1] - table[k, 1])
    return y
