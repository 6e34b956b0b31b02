"""Pixels of the canvas by hand computation, and frames in a window (a dummy one)."""

import sys

import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled
from hypothesis import given
from hypothesis import strategies as some

from velocirl.engine.canvas import BLUE, PAPER, RED, WHITE, Canvas
from velocirl.vector.window import Window

BLACK = (0, 0, 0)


def canvas_of(left=0, right=10, bottom=0, top=10, width=10, height=10, background=BLACK):
    canvas = Canvas()
    canvas.view(left, right, bottom, top, width, height, background)
    return canvas


def area(canvas):
    """How many pixels are white, on a black canvas."""
    return canvas.pixels[:, :, 0].sum() / 255


def test_view_clears_to_the_background_and_never_touches_an_earlier_frame():
    canvas = Canvas()
    canvas.view(0, 1, 0, 1)
    first = canvas.pixels
    assert first.shape == (400, 600, 3)
    assert first.dtype == np.uint8
    assert (first == PAPER).all()
    canvas.view(0, 1, 0, 1, 20, 30, RED)
    assert canvas.pixels.shape == (30, 20, 3)
    assert (canvas.pixels == RED).all()
    assert (first == PAPER).all()


def test_rectangle_fills_whole_pixels_exactly():
    canvas = canvas_of()
    canvas.rectangle(2, 1, 5, 3, RED)
    expected = np.zeros((10, 10, 3), np.uint8)
    expected[7:9, 2:5] = RED
    np.testing.assert_array_equal(canvas.pixels, expected)


def test_edges_show_the_share_of_the_pixel_that_is_covered():
    canvas = canvas_of()
    canvas.rectangle(2.5, 2.25, 4, 4, WHITE)
    assert (canvas.pixels[6:7, 2] == 128).all()  # half
    assert (canvas.pixels[7, 3] == 191).all()  # three quarters
    assert (canvas.pixels[7, 2] == 96).all()  # three quarters of half
    assert (canvas.pixels[6, 3] == 255).all()


def test_an_edge_mixes_with_what_is_below():
    canvas = canvas_of(background=(100, 200, 50))
    canvas.rectangle(0.5, 0, 10, 10, (200, 100, 50))
    np.testing.assert_array_equal(canvas.pixels[5, 0], (150, 150, 50))


def test_y_grows_upwards_or_downwards():
    up, down = canvas_of(), canvas_of(bottom=10, top=0)
    up.rectangle(0, 0, 10, 1, RED)
    down.rectangle(0, 0, 10, 1, RED)
    assert (up.pixels[9] == RED).all()
    assert (up.pixels[:9] == BLACK).all()
    assert (down.pixels[0] == RED).all()
    assert (down.pixels[1:] == BLACK).all()


def test_disc_has_its_colour_at_the_centre_half_at_the_rim_and_its_area():
    canvas = canvas_of(-100.5, 100.5, -100.5, 100.5, 201, 201)
    canvas.disc(0, 0, 50, WHITE)
    assert (canvas.pixels[100, 100] == WHITE).all()
    assert (canvas.pixels[100, 40] == BLACK).all()
    for row, column in ((100, 50), (100, 150), (50, 100), (150, 100)):
        assert canvas.pixels[row, column, 0] == pytest.approx(127, abs=20)  # the rim halves these pixels
    assert area(canvas) == pytest.approx(np.pi * 50**2, rel=3e-3)


def test_line_has_round_ends_and_its_width():
    canvas = canvas_of(0, 100, 0, 100, 100, 100)
    canvas.line(20, 50, 80, 50, 10, WHITE)
    assert (canvas.pixels[45:55, 50] == WHITE).all()
    assert (canvas.pixels[[44, 55], 50] == BLACK).all()
    assert (canvas.pixels[50, [16, 83]] == WHITE).all()
    assert (canvas.pixels[46, 15] == BLACK).all()
    assert area(canvas) == pytest.approx(600 + np.pi * 25, rel=3e-3)


def test_diagonal_line_has_the_same_area_as_a_level_one():
    canvas = canvas_of(0, 100, 0, 100, 100, 100)
    canvas.line(20, 20, 56, 68, 10, WHITE)
    assert (canvas.pixels[100 - 44, 38] == WHITE).all()
    assert area(canvas) == pytest.approx(600 + np.pi * 25, rel=3e-3)


def test_line_without_length_is_a_disc():
    line, disc = canvas_of(), canvas_of()
    line.line(5, 5, 5, 5, 6, WHITE)
    disc.disc(5, 5, 3, WHITE)
    assert np.abs(line.pixels.astype(int) - disc.pixels).max() <= 12


@pytest.mark.parametrize("turn", [1, -1])
def test_polygon_may_be_hollow_at_a_side_and_turn_either_way(turn):
    canvas = canvas_of()
    corner = [(1, 1), (9, 1), (9, 9), (6, 9), (6, 4), (1, 4)][::turn]
    canvas.polygon(corner, WHITE)
    expected = np.zeros((10, 10), np.uint8)
    expected[6:9, 1:9] = 255
    expected[1:6, 6:9] = 255
    np.testing.assert_array_equal(canvas.pixels[:, :, 0], expected)


def test_hypotenuse_covers_half_of_the_pixels_on_it():
    canvas = canvas_of()
    canvas.polygon([(0, 0), (10, 0), (0, 10)], WHITE)
    np.testing.assert_allclose(canvas.pixels[range(10), range(10), 0], 128, atol=1)
    assert area(canvas) == pytest.approx(50, abs=0.05)


def test_what_lies_outside_is_cut_off():
    canvas = canvas_of()
    canvas.rectangle(-1e9, 8, 3, 1e9, RED)
    expected = np.zeros((10, 10, 3), np.uint8)
    expected[:2, :3] = RED
    np.testing.assert_array_equal(canvas.pixels, expected)
    canvas.rectangle(20, 0, 30, 10, BLUE)
    canvas.disc(5, -50, 10, BLUE)
    canvas.line(-9, 5, -3, 5, 1, BLUE)
    np.testing.assert_array_equal(canvas.pixels, expected)


def test_shapes_that_are_not_finite_are_left_out():
    canvas = canvas_of()
    canvas.disc(float("nan"), 5, 1, RED)
    canvas.disc(5, 5, float("nan"), RED)
    canvas.line(0, 0, float("inf"), 5, 1, RED)
    assert (canvas.pixels == BLACK).all()


@given(some.lists(some.tuples(some.floats(0, 10), some.floats(0, 10)), min_size=3, max_size=3))
def test_any_triangle_has_its_area(corners):
    (x1, y1), (x2, y2), (x3, y3) = corners
    canvas = canvas_of(0, 10, 0, 10, 40, 40)
    canvas.polygon(corners, WHITE)
    exact = 0.5 * abs((x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1)) * 16
    assert area(canvas) == pytest.approx(exact, abs=3.0)  # rounding of colours and scanlines, along at most 140 pixels


def test_drawing_before_the_view_and_an_empty_view_are_refused():
    with pytest.raises(RuntimeError, match=r"call canvas\.view"):
        Canvas().disc(0, 0, 1, RED)
    with pytest.raises(ValueError, match="nothing can be seen"):
        Canvas().view(1, 1, 0, 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("circle", "a canvas has no 'circle': it is 'disc'"),
        ("rect", "a canvas has no 'rect': it is 'rectangle'"),
        ("clear", "a canvas has no 'clear': it is 'view'"),
        ("rectangel", "a canvas has no 'rectangel': did you mean 'rectangle'?"),
        ("label", "a canvas has no 'label': it is 'text'"),
        ("fog", "a canvas has no 'fog'; there are view, rectangle, disc, line, polygon, text, ansi"),
    ],
)
def test_a_method_that_there_is_not_says_which_there_are(name, message):
    with pytest.raises(AttributeError) as caught:
        getattr(canvas_of(), name)
    assert str(caught.value) == message


@pytest.mark.parametrize("color", ["red", 3, (1, 2), (1, 2, 3, 4)])
def test_a_color_is_three_numbers(color):
    with pytest.raises(ValueError, match=r"a color is \(red, green, blue\), each from 0 to 255, and not "):
        canvas_of().disc(5, 5, 1, color)


def test_ansi_shows_two_pixels_in_each_half_block():
    canvas = canvas_of(0, 2, 4, 0, 2, 4)
    canvas.rectangle(0, 0, 1, 1, (1, 2, 3))
    canvas.rectangle(1, 3, 2, 4, (4, 5, 6))
    assert canvas.ansi() == (
        "\x1b[38;2;1;2;3;48;2;0;0;0m▀\x1b[38;2;0;0;0;48;2;0;0;0m▀\x1b[0m\n"
        "\x1b[38;2;0;0;0;48;2;0;0;0m▀\x1b[38;2;0;0;0;48;2;4;5;6m▀\x1b[0m"
    )


def test_ansi_averages_the_picture_down_to_the_columns():
    canvas = canvas_of(0, 600, 0, 400, 600, 400)
    canvas.rectangle(0, 0, 5, 400, (200, 100, 0))  # half of the first of 60 columns
    lines = canvas.ansi(60).split("\n")
    assert len(lines) == 20
    assert all(line.count("▀") == 60 for line in lines)
    assert all(line.startswith("\x1b[38;2;100;50;0;48;2;100;50;0m▀\x1b[38;2;0;0;0") for line in lines)


@pytest.fixture
def dummy_display(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield pygame
    pygame.display.quit()


def test_window_shows_the_frame_the_right_way_round(dummy_display):
    window = Window("title")
    pixels = np.zeros((400, 600, 3), np.uint8)
    pixels[10, 20] = RED
    window.show(pixels, fps=1000)
    screen = dummy_display.display.get_surface()
    assert screen.get_size() == (600, 400)
    assert screen.get_at((20, 10))[:3] == RED
    assert screen.get_at((10, 20))[:3] == BLACK
    assert dummy_display.display.get_caption()[0] == "title"
    window.close()
    assert not dummy_display.display.get_init()


def test_window_enlarges_small_frames(dummy_display):
    window = Window()
    pixels = np.zeros((50, 100, 3), np.uint8)
    pixels[10, 20] = RED
    window.show(pixels, fps=1000)
    screen = dummy_display.display.get_surface()
    assert screen.get_size() == (400, 200)
    assert screen.get_at((82, 42))[:3] == RED
    assert screen.get_at((86, 42))[:3] == BLACK
    window.close()


def test_a_person_closing_the_window_stops_nothing(dummy_display):
    window = Window()
    pixels = np.zeros((40, 60, 3), np.uint8)
    window.show(pixels, fps=1000)
    dummy_display.event.post(dummy_display.event.Event(dummy_display.QUIT))
    window.show(pixels, fps=1000)
    assert window.closed
    assert not dummy_display.display.get_init()
    window.show(pixels, fps=1000)
    window.close()
    assert not dummy_display.display.get_init()


def test_without_pygame_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(DependencyNotInstalled, match=r'pip install "velocirl\[render\]"'):
        Window().show(np.zeros((4, 4, 3), np.uint8), fps=30)


def test_without_a_display_the_error_names_another_render_mode(monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    monkeypatch.setenv("DISPLAY", ":4711")
    with pytest.raises(RuntimeError, match='render_mode="rgb_array"'):
        Window().show(np.zeros((4, 4, 3), np.uint8), fps=30)


def test_a_display_that_shows_nothing_is_refused_unless_asked_for(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.setattr(pygame.display, "init", lambda: None)
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    with pytest.raises(RuntimeError, match='render_mode="rgb_array"'):
        Window().show(np.zeros((4, 4, 3), np.uint8), fps=30)
