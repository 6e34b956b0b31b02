"""From what a policy drew to what an environment gets, in plain Python and compiled."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from velocirl.engine.action_parts import action_type, as_given
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.launching import CPULauncher, PythonLauncher, Work, by_row
from velocirl.program.rows.commands import command_for

INF = np.inf


def box(low, high, dtype=np.float32):
    return Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


DRAWN = np.array([[0, 0], [1, -1], [0.5, 0.25], [3, -7], [-0.5, 1e9]], np.float32)
WITHIN = np.clip(DRAWN, -1, 1)


def written(space, drawn, *, compiled):
    number = "f4" if isinstance(space, Box) else "i4"
    rows = np.zeros(len(drawn), [("action", number, (len(drawn[0]),))])
    rows["action"] = drawn
    actions = np.zeros((len(drawn), *(space.shape or (1,))), space.dtype)
    command, table = command_for(space)
    launcher = CPULauncher(1, learning_translator("commands")) if compiled else PythonLauncher()
    given = rows if compiled else with_attributes(rows)
    launcher.launch([Work(by_row(command), (actions, given, Shared(table)))], len(drawn))(0)
    return actions.reshape(len(drawn), *space.shape)


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
    rows = with_attributes(np.zeros(1, [("action", "f4", (2,))]))
    rows["action"] = DRAWN[3]
    command, table = command_for(Box(-1, 1, (2,)))
    command(np.zeros(2, np.float32), rows[0], table[0])
    np.testing.assert_array_equal(rows["action"][0], DRAWN[3])


PARTS = Tuple(
    (
        Box(np.array([[0.0], [-1.0]]), np.array([[0.1], [INF]]), dtype=np.float64),
        Dict(kind=Discrete(3, start=4), flags=MultiBinary(2)),
        Box(-2, 2, ()),
        MultiDiscrete([[2, 3]], start=[[-1, 0]]),
    )
)


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
def test_parts_get_their_choices_and_numbers(compiled):
    """Of a policy all choices come first: kind, flags, the two of the last part; then all numbers."""
    rows = np.zeros(2, [("action", "f4", (8,))])
    rows["action"] = [[2, 1, 0, 1, 2, 0.5, 7.0, -0.25], [0, 0, 1, 0, 0, 3.0, -3.0, -9.0]]
    actions = np.zeros(2, action_type(PARTS, own=True))
    command, table = command_for(PARTS)
    launcher = CPULauncher(1, learning_translator("commands")) if compiled else PythonLauncher()
    given = (actions, rows) if compiled else (with_attributes(actions), with_attributes(rows))
    launcher.launch([Work(by_row(command), (*given, Shared(table)))], 2)(0)
    numbers, choices, alone, pair = as_given(PARTS, actions)
    np.testing.assert_allclose(numbers, [[[0.075], [7.0]], [[0.1], [-1.0]]], rtol=1e-6)
    assert choices["flags"].tolist() == [[1, 0], [0, 1]]
    assert choices["kind"].tolist() == [6, 4]
    assert alone.tolist() == [-0.5, -2.0]
    assert pair.tolist() == [[[0, 2]], [[-1, 0]]]
    for copy in range(2):
        action = (
            numbers[copy],
            {name: part[copy] for name, part in choices.items()},
            np.asarray(alone[copy]),
            pair[copy],
        )
        assert PARTS.contains(action)  # though 0.1 in single precision is more than that


def test_what_a_space_of_parts_needs_is_compiled_code_of_its_own_only():
    """Others keep the functions, and so the compiled code, that they had."""
    assert command_for(Discrete(3))[0] is command_for(MultiDiscrete([2, 2]))[0]
    assert command_for(Box(-1, 1, (2,)))[0] is command_for(Box(0, 9, (3,)))[0]
