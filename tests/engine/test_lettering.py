"""Text on a canvas by hand computation: dots of letters, and the share of a pixel that they cover."""

import numpy as np
import pytest

from velocirl.engine.canvas import WHITE, Canvas
from velocirl.engine.lettering import DOTS, GLYPHS

BLACK = (0, 0, 0)
T = np.array([[1, 1, 1, 1, 1], *[[0, 0, 1, 0, 0]] * 6])


def canvas_of(width=20, height=11):
    canvas = Canvas()
    canvas.view(0, width, 0, height, width, height, BLACK)
    return canvas


def lit(canvas):
    return (canvas.pixels[:, :, 0] > 127).astype(int)


def test_a_letter_has_its_dots_where_they_belong():
    canvas = canvas_of()
    canvas.text(3, 5.5, "T", DOTS, WHITE)
    expected = np.zeros((11, 20), int)
    expected[2:9, 3:8] = T
    np.testing.assert_array_equal(lit(canvas), expected)


def test_text_is_aligned_at_its_left_its_middle_and_its_right():
    for align, first in (("left", 10), ("center", 5), ("right", -1)):
        canvas = canvas_of(21)
        canvas.text(10 if align != "center" else 10.5, 5.5, "TT", DOTS, WHITE, align)
        columns = np.flatnonzero(lit(canvas).any(axis=0))
        assert columns[0] == max(first, 0)
        assert columns[-1] == min(first + 10, 20)


def test_letters_scale_and_cover_shares_of_pixels():
    canvas = canvas_of(40, 22)
    canvas.text(6, 11, "T", 2 * DOTS, WHITE)
    np.testing.assert_array_equal(lit(canvas)[4:18, 6:16], np.kron(T, np.ones((2, 2))))
    half = canvas_of()
    half.text(3.5, 5.5, "|", DOTS, WHITE)  # a column of dots over halves of two columns of pixels
    assert set(half.pixels[2:9, 5:7, 0].ravel().tolist()) == {128}
    small = canvas_of()
    small.text(3, 5.5, "T", DOTS / 2, WHITE)
    assert small.pixels[:, :, 0].sum() / 255 == pytest.approx(T.sum() / 4, rel=0.02)


def test_lines_follow_each_other_and_numbers_are_text():
    canvas = canvas_of(20, 22)
    canvas.text(0, 16.5, "T\nT", DOTS, WHITE)
    np.testing.assert_array_equal(lit(canvas)[2:9], lit(canvas)[13:20])
    number, text = canvas_of(), canvas_of()
    number.text(0, 5, 42, DOTS, WHITE)
    text.text(0, 5, "42", DOTS, WHITE)
    np.testing.assert_array_equal(number.pixels, text.pixels)


def test_text_stands_above_shapes_and_leaves_earlier_frames():
    canvas = canvas_of()
    canvas.text(3, 5.5, "T", DOTS, WHITE)
    before = canvas.pixels
    copied = before.copy()
    canvas.rectangle(0, 0, 20, 11, (9, 9, 9))
    np.testing.assert_array_equal(before, copied)
    assert (canvas.pixels[2, 3:8] == WHITE).all()
    assert (canvas.pixels[10] == 9).all()
    assert (canvas.shapes == 9).all()  # without the text
    canvas.view(0, 20, 0, 11, 20, 11, BLACK)
    assert not lit(canvas).any()


def test_what_does_not_fit_is_cut_off_and_what_is_not_finite_left_out():
    canvas = canvas_of()
    canvas.text(-3, 12, "TTTTTTTT", 5, WHITE)
    canvas.text(100, -50, "T", 5, WHITE)
    assert lit(canvas)[:2].any()
    empty = canvas_of()
    for x, y, size in ((float("nan"), 5, 5), (5, float("inf"), 5), (5, 5, float("nan")), (5, 5, 0)):
        empty.text(x, y, "T", size, WHITE)
    empty.text(5, 5, "", 5, WHITE)
    assert not lit(empty).any()


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="align='middle' is unknown: use left, center, right"):
        canvas_of().text(0, 0, "T", 5, WHITE, "middle")
    with pytest.raises(ValueError, match="a color is"):
        canvas_of().text(0, 0, "T", 5, "red")
    with pytest.raises(RuntimeError, match=r"call canvas\.view"):
        Canvas().text(0, 0, "T", 5, WHITE)


def test_glyphs_are_well_formed_and_differ():
    assert set(map(chr, range(32, 127))) <= set(GLYPHS)
    for character, code in GLYPHS.items():
        assert len(code) in ((0,) if character == " " else (2 * DOTS, 2 * DOTS + 2, 2 * DOTS + 4)), character
        assert all(int(code[place : place + 2], 16) < 32 for place in range(0, len(code), 2)), character
    assert len(set(GLYPHS.values())) == len(GLYPHS)
