"""Frames in a terminal, as a small emulator of one shows them; and how much is written for them."""

import re
import time

import numpy as np
import pytest

import velocirl
from velocirl.engine.canvas import BLUE, RED, WHITE, Canvas
from velocirl.monitor.screen import CLOSE, OPEN, Screen, _of_256

COMMAND = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(.)", re.DOTALL)
BLANK = (" ", None, None)


class Terminal:
    """A stream that keeps what a terminal of this size would show: a character, its color and its background."""

    def __init__(self, columns=40, rows=12):
        self.columns, self.rows, self.written = columns, rows, ""
        self.cells = {}

    def write(self, text):
        self.written += text
        for codes, command, character in COMMAND.findall(text):
            if command == "m":
                self._style([int(one or 0) for one in codes.split(";")])
            elif command == "H":
                self.row, self.column = (int(one) - 1 for one in codes.split(";"))
            elif command == "J":
                self.cells = {}
            elif character:
                assert 0 <= self.column < self.columns, "a character would go into the next line"
                assert 0 <= self.row < self.rows
                text = None if character == " " and self.ink[1] != "inverted" else self.ink[0]
                self.cells[self.row, self.column] = (character, text, self.ink[1])
                self.column += 1

    def flush(self):
        pass

    def _style(self, codes):
        codes = list(codes)
        text, ground = getattr(self, "ink", (None, None))
        while codes:
            code = codes.pop(0)
            if code == 0:
                text, ground = None, None
            elif code in (7, 27):
                ground = "inverted" if code == 7 else None
            elif code in (39, 49):
                text, ground = (None, ground) if code == 39 else (text, None)
            else:
                count = 3 if codes.pop(0) == 2 else 1
                color, codes = tuple(codes[:count]), codes[count:]
                text, ground = (color, ground) if code == 38 else (text, color)
        self.ink = text, ground

    def line(self, row):
        return "".join(self.cells.get((row, column), BLANK)[0] for column in range(self.columns)).rstrip()

    def shown(self):
        return {place: cell for place, cell in self.cells.items() if cell != BLANK}


class Sized(Screen):
    """A screen of a terminal that is none."""

    @property
    def size(self):
        return self._stream.columns, self._stream.rows


def canvas_of(width=40, height=20, background=WHITE):
    canvas = Canvas()
    canvas.view(0, width, 0, height, width, height, background)
    return canvas


def test_each_half_of_a_cell_has_a_pixel():
    terminal = Terminal(8, 4)
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[0, 0], pixels[1, 0], pixels[2:, 1] = (1, 2, 3), (4, 5, 6), (9, 9, 9)
    with Sized(terminal) as screen:
        screen.show(pixels, ["done"])
        assert terminal.cells[0, 0] == ("▀", (1, 2, 3), (4, 5, 6))
        assert terminal.cells[1, 1] == (" ", None, (9, 9, 9))
        assert terminal.cells[0, 7] == (" ", None, (0, 0, 0))
        assert terminal.line(2) == "done"
    assert terminal.written.startswith(OPEN)
    assert terminal.written.endswith(CLOSE)


@pytest.mark.parametrize("truecolor", [True, False])
def test_what_is_shown_is_the_last_frame_whatever_was_there_before(truecolor):
    rng = np.random.default_rng(3)
    terminal = Terminal()
    with Sized(terminal, truecolor=truecolor) as screen:
        for number in range(30):
            if number == 20:
                terminal.columns, terminal.rows = 30, 9
            canvas = canvas_of(background=(10, 20, 30))
            for _ in range(3):
                x, y = rng.uniform(0, 40), rng.uniform(0, 20)
                canvas.disc(x, y, rng.uniform(1, 9), tuple(rng.integers(0, 256, 3).tolist()))
            canvas.text(rng.uniform(0, 30), rng.uniform(0, 20), f"score {number}", 3, WHITE)
            lines = [f"step {number}", "← left"][: number % 3]
            screen.show("a\n\x1b[41mb\x1b[0mc" if number == 25 else canvas, lines)
            alone = Terminal(terminal.columns, terminal.rows)
            Sized(alone, truecolor=truecolor).show("a\n\x1b[41mb\x1b[0mc" if number == 25 else canvas, lines)
            assert terminal.shown() == alone.shown()


def test_a_frame_that_is_the_same_writes_nothing_and_a_small_change_little():
    terminal = Terminal(120, 40)
    canvas = canvas_of(600, 400)
    with Sized(terminal) as screen:
        first = screen.show(canvas)
        assert screen.show(canvas) == 0
        canvas.disc(300, 200, 10, RED)
        assert 0 < screen.show(canvas) < 1000
    assert first < 10_000


def test_small_text_is_written_in_characters_and_large_text_painted():
    terminal = Terminal(40, 12)
    canvas = canvas_of(400, 200)
    for x, align in ((5, "left"), (200, "center"), (395, "right")):
        canvas.text(x, 190, "ab", 12, BLUE, align)
    canvas.text(384, 100, "cut off", 12, BLUE)
    with Sized(terminal) as screen:
        screen.show(canvas)
        assert terminal.line(0) == "ab" + 17 * " " + "ab" + 17 * " " + "ab"
        assert terminal.cells[0, 0] == ("a", BLUE, WHITE)
        assert terminal.line(5) == 38 * " " + "cu"
        canvas.view(0, 400, 0, 200, 400, 200)
        canvas.text(200, 100, "ab", 120, BLUE, "center")
        screen.show(canvas)
        assert not any(character.isalpha() for character, *_ in terminal.cells.values())
        assert sum(cell[2] == BLUE for cell in terminal.cells.values()) > 20


def test_lines_of_text_keep_to_the_screen_and_show_no_control_characters():
    terminal = Terminal(10, 3)
    with Sized(terminal) as screen:
        screen.show("0123456789abc\n\tx漢\n3\n4\n5", ["status"])
        assert [terminal.line(row) for row in range(3)] == ["0123456789", "status", ""]
        screen.show("\x07x漢", ["\x1b]0;title\x07"])
        assert [terminal.line(row) for row in range(2)] == ["?x?", "?]0;title?"]


def test_the_nearest_of_256_colors_is_chosen():
    colors = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [128, 128, 128], [95, 135, 175]], np.int32)
    assert _of_256(colors).tolist() == [16, 231, 196, 244, 67]


def test_cartpole_is_shown_at_more_than_its_own_rate():
    """At 50 frames per second a frame may take 20 ms on one core, and 0.9 of the rate 22 ms: it takes about 4."""
    env = velocirl.make("CartPole-v1", render_mode="canvas", device="python")
    env.reset(seed=0)
    terminal = Terminal(120, 40)
    terminal.write = lambda text: None
    with Sized(terminal) as screen:
        characters = [screen.show(env.render(), ["step 0"])]
        began = time.process_time()
        for step in range(1, 101):
            ended = env.step(step % 2)[2]
            characters.append(screen.show(env.render(), [f"step {step}"]))
            if ended:
                env.reset()
        taken = (time.process_time() - began) / 100
    assert env.metadata["render_fps"] == 50
    assert taken < 0.9 / 50
    assert np.mean(characters) < 6_000
