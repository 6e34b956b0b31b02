"""Tables in scalar functions: a pump curve or a valve characteristic, interpolated between its points."""

from typing import Any


def lookup(table: Any, x: Any) -> Any:
    """Interpolate linearly in a table of rows (x, y), an array of the module with x ascending; as `numpy.interp`.

    Beyond the ends of the table their values hold. Each segment adds its share of the way, without a branch and without
    an index that depends on `x`: a step with a short table is vectorized over copies, and costs as much in all of them.
    """
    y = table[0, 1]
    for k in range(table.shape[0] - 1):
        left, right = table[k, 0], table[k + 1, 0]
        y += (min(max(x, left), right) - left) / (right - left) * (table[k + 1, 1] - table[k, 1])
    return y
