"""Curves as characters: what is drawn is what was measured, in any terminal."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from velocirl.runs.curves.characters import NOTHING, Line, plot_lines, sparkline, terminal_plot


def test_a_sparkline_rises_with_its_values():
    assert sparkline(range(8), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(range(8), 8, ascii_only=True) == "_.-=+*#@"
    assert sparkline([0, 70, 0, -70], 10) == "▅█▅▁"
    assert sparkline(np.repeat([0.0, 7.0, 3.0], 50), 3) == "▁█▄"  # means of equal shares
    assert sparkline([1.0, None, math.nan, math.inf, 8.0], 5) == "▁   █"


def test_a_sparkline_of_little_is_little():
    assert sparkline([], 10) == ""
    assert sparkline([1.0, 2.0], 0) == ""
    assert sparkline([None, None], 10) == "  "
    assert sparkline([5.0, 5.0, 5.0], 10) == "▅▅▅"


def dots(lines):
    """Where the dots of braille characters are: columns, and rows from below."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
    return np.array(
        [
            (2 * column + x, 4 * (len(lines) - row) - 1 - y)
            for row, line in enumerate(lines)
            for column, character in enumerate(line)
            for x in range(2)
            for y in range(4)
            if 0x2800 <= ord(character) <= 0x28FF and ord(character) & bits[y][x]
        ]
    ).T


@pytest.mark.parametrize(("width", "height"), [(32, 8), (80, 24)])
def test_a_terminal_plot_is_drawn_to_scale(width, height):
    steps = np.linspace(0, 1e6, 7)
    columns, rows = dots([line[5:] for line in terminal_plot(steps, 200 * (steps / 1e6) ** 2, width, height)[:-2]])
    across, up = 2 * (width - 5) - 1, 4 * (height - 2) - 1
    assert (columns.min(), columns.max(), rows.min(), rows.max()) == (0, across, 0, up)
    assert set(columns) == set(range(across + 1))  # without a gap
    expected = np.interp(columns / across, steps / 1e6, (steps / 1e6) ** 2)
    slope = 11 / 6 * up / across  # of the steepest piece: a dot stands for a column's width of it
    assert np.max(np.abs(rows - up * expected)) <= 1 + slope / 2


def test_a_terminal_plot_has_labels_where_their_values_are():
    lines = terminal_plot([0, 500_000, 1_000_000], [0.0, 100.0, 200.0], 32, 9)
    assert [line[:5] for line in lines] == [
        "200 ┤",
        "    │",
        "    │",
        "100 ┤",
        "    │",
        "    │",
        "  0 ┤",
        "    └",
        "     ",
    ]
    assert lines[-2:] == ["    └┬────────────┬────────────┬", "     0          0.5M          1M"]


def test_a_plot_from_near_zero_begins_at_zero_and_any_other_where_its_data_do():
    near = terminal_plot([2048, 40_000], [9.0, 200.0], 40, 9)
    assert (near[-3][:7], near[-1].split()) == ("  0 ┤  ", ["0", "20k", "40k"])
    far = terminal_plot([30_000, 40_000], [150.0, 200.0], 40, 9)
    assert ([line[:3] for line in far[:-2]], far[-1].split()) == (
        ["200", "   ", "180", "   ", "   ", "160", "   "],
        ["30k", "35k", "40k"],
    )


def test_a_terminal_plot_without_unicode():
    assert terminal_plot([0, 50_000, 100_000], [-1.0, 1.0, -1.0], 30, 7, ascii_only=True) == [
        " 1 |           ***",
        "   |        ***   ***",
        " 0 |     ***         ****",
        "   |  ***                ***",
        "-1 |**                      **",
        "   ++------------------------+",
        "    0                     100k",
    ]


def test_a_terminal_plot_of_nothing_says_so():
    assert terminal_plot([], [], 40, 10) == [NOTHING]
    assert terminal_plot([1, 2], [None, math.nan], 40, 10) == [NOTHING]


figures = st.none() | st.floats(-1e12, 1e12) | st.just(math.nan)


@hypothesis.given(
    points=st.lists(st.tuples(st.integers(0, 10**12), figures), max_size=30),
    width=st.integers(0, 100),
    height=st.integers(0, 40),
    ascii_only=st.booleans(),
)
def test_any_plot_keeps_to_its_size(points, width, height, ascii_only):
    steps, values = [step for step, _ in points], [value for _, value in points]
    lines = terminal_plot(steps, values, width, height, ascii_only=ascii_only)
    assert len(sparkline(values, width, ascii_only=ascii_only)) == min(width, len(values))
    if lines == [NOTHING]:
        assert not any(value is not None and math.isfinite(value) for value in values)
        return
    assert len(lines) == max(height, 4)
    assert max(map(len, lines)) <= max(width, 24)
    body = "".join(lines[:-2])
    assert "*" in body if ascii_only else any("⠀" < character <= "⣿" for character in body)
    assert not ascii_only or "".join(lines).isascii()
    assert any(character.isdigit() for character in body)  # an axis has at least one label
    assert any(character.isdigit() for character in lines[-1])


def test_several_lines_keep_their_own_characters():
    rising, falling, dots = Line([0, 10], [0.0, 10.0]), Line([0, 10], [10.0, 0.0]), Line([0, 5, 10], [0, 5, 10], False)
    drawn = plot_lines([rising, falling], 40, 10)
    owners = {owner for line in drawn for _, owner in line}
    assert owners == {None, 0, 1}
    top = "".join(f"{owner}" * len(text) for text, owner in drawn[0] if text.strip())
    assert top.index("1") < top.index("0")  # the second is on the left of the first line, the first on its right
    assert all(owner is None for line in drawn[-2:] for _, owner in line)
    lone = "".join(text for line in plot_lines([rising, dots], 40, 10) for text, owner in line if owner == 1)
    assert lone == "●●●"  # on top of the line


def test_without_colours_lines_have_signs_of_their_own():
    lines = [Line([0, 10], [float(level), float(level)]) for level in range(3)]
    drawn = ["".join(text for text, _ in line) for line in plot_lines(lines, 40, 9, signs=True)]
    assert [sign for sign in "*o+" if any(sign in line for line in drawn[:-2])] == ["*", "o", "+"]
    assert [next(i for i, line in enumerate(drawn) if sign in line) for sign in "+o*"] == [0, 3, 6]
    assert "┤" in "".join(drawn)


def test_lines_of_nothing_are_passed_over():
    assert plot_lines([Line([], []), Line([1], [None])], 40, 10) == [[(NOTHING, None)]]
    drawn = plot_lines([Line([1, 2], [math.nan, None]), Line([1, 2], [1.0, 2.0])], 40, 10)
    assert {owner for line in drawn for _, owner in line} == {None, 1}
