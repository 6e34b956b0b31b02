"""From what a policy drew to what an environment gets, in plain Python and compiled."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from velocirl.training.commands import writer_for

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import as_rows, row

INF = np.inf


def box(low, high, dtype=np.float32):
    return Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


DRAWN = np.array([[0, 0], [1, -1], [0.5, 0.25], [3, -7], [-0.5, 1e9]], np.float32)
WITHIN = np.clip(DRAWN, -1, 1)


def loop_of(write):
    def loop(actions, drawn):
        for i in range(len(actions)):
            write(actions, i, row(drawn, i))

    return loop


def written(space, drawn, *, compiled):
    drawn = np.array(drawn, np.float32 if isinstance(space, Box) else np.int32)
    actions = np.zeros((len(drawn), *space.shape), space.dtype)
    loop, rows, given = loop_of(writer_for(space)), actions, drawn
    if compiled:
        rows, given = (actions if actions.ndim == 1 else as_rows(actions)), as_rows(drawn)
        loop = compile_loop(loop, (rows, given), learning_translator("commands"), before=lambda: None)
    loop(rows, given)
    return actions


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize(
    ("space", "drawn", "expected"),
    [
        (Discrete(4), [[0], [3]], [0, 3]),
        (Discrete(4, start=-2), [[0], [3]], [-2, 1]),
        (MultiDiscrete([2, 3]), [[1, 2]], [[1, 2]]),
        (MultiDiscrete([2, 3], start=[10, -3]), [[1, 2], [0, 0]], [[11, -1], [10, -3]]),
        (MultiBinary(3), [[1, 0, 1]], [[1, 0, 1]]),
        (Box(-1, 1, (2,)), DRAWN, WITHIN),
        (box([0, -2], [350, 6], np.float64), DRAWN, WITHIN * [175, 4] + [175, 2]),
        (Box(-INF, INF, (2,)), DRAWN, DRAWN),
        (box([0, -INF], [INF, 0.125]), DRAWN, np.clip(DRAWN, [0, -INF], [INF, 0.125])),
        (box([-4, -INF], [4, INF]), DRAWN, np.column_stack([WITHIN[:, 0] * 4, DRAWN[:, 1]])),
    ],
    ids=str,
)
def test_actions(space, drawn, expected, compiled):
    found = written(space, drawn, compiled=compiled)
    assert found.dtype == space.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert all(space.contains(action) for action in found)


def test_what_was_drawn_stays_as_it_was():
    """The log-probability is that of what was drawn, so nothing may change it afterwards."""
    drawn = DRAWN.copy()
    writer_for(Box(-1, 1, (2,)))(np.zeros((1, 2), np.float32), 0, drawn[3])
    np.testing.assert_array_equal(drawn, DRAWN)
