"""A person at play: keys by what actions mean, games from a keyboard, and a terminal that is as it was before."""

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from contextlib import suppress

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from rich.console import Console

import velocirl
from velocirl.cli.play.keyboard import END, ENTER, ERASE, LEFT, RIGHT, SPACE, UP, Keyboard
from velocirl.cli.play.keys import LETTERS, MEANINGS, Keys, meanings_of
from velocirl.cli.play.me import Ended, Game
from velocirl.cli.play.showing import Pace, animate
from velocirl.monitor.screen import CLOSE, OPEN, Screen
from velocirl.training.actors.playing import moments

ALE = ["NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT"]
ALE += [f"{one}FIRE" for one in ALE[2:]]
DISCRETE = [name for name in velocirl.list_envs() if isinstance(velocirl.make(name).action_space, Discrete)]


def keys_of(keys):
    """The actions of all keys that have one."""
    known = [LEFT, RIGHT, UP, "down", SPACE, *"abcdefghijklmnopqrstuvwxyz0123456789."]
    return {key: int(action) for key in known if (action := keys.press(key)) is not None}


@pytest.mark.parametrize("name", DISCRETE)
def test_every_action_of_every_environment_has_a_key_that_is_shown(name):
    env = velocirl.make(name)
    keys = Keys(env.action_space, meanings_of(env))
    assert set(keys_of(keys).values()) == set(range(env.action_space.n))
    told = "   ".join(keys.lines(1000))
    for meaning in meanings_of(env):
        assert meaning in told


def test_keys_follow_what_actions_mean():
    keys = Keys(Discrete(4), ("right", "NOOP", "left", "FIRE"))
    assert keys_of(keys) == {RIGHT: 0, "d": 0, "x": 1, LEFT: 2, "a": 2, SPACE: 3}
    assert keys.idle == 1
    assert keys.lines(80) == ["→/d right   x NOOP   ←/a left   space FIRE   Esc end"]
    assert keys.lines(20) == ["→/d right   x NOOP", "←/a left", "space FIRE   Esc end"]
    lander = Keys(Discrete(4), MEANINGS["LunarLander"])
    assert [lander.press(key) for key in (LEFT, UP, RIGHT)] == [1, 2, 3]
    assert lander.idle == 0
    assert [Keys(Discrete(18), ALE).press(key) for key in (SPACE, UP, "e", "q", "z", "c")] == [1, 2, 6, 7, 9, 8]
    assert set(keys_of(Keys(Discrete(18), ALE)).values()) == set(range(18))


def test_actions_without_meanings_are_digits_and_many_are_typed():
    keys = Keys(Discrete(3, start=5))
    assert [keys.press(key) for key in "0123"] == [5, 6, 7, None]
    assert keys.idle is None
    many = Keys(Discrete(200))
    assert many.typed
    assert many.lines(80) == ["type the number of an action, 0 to 199, and Enter"]
    assert Keys(Discrete(50), [f"{LETTERS} {number}" for number in range(50)]).typed


def test_several_choices_have_a_row_of_keys_each():
    keys = Keys(MultiDiscrete([3, 2]))
    assert keys.press("3").tolist() == [2, 0]
    assert keys.press("w").tolist() == [2, 1]
    assert keys.press("e") is None
    assert keys.lines(80) == ["choice 1: 1 2 [3]   choice 2: q [w]   Enter step   Esc end"]
    assert Keys(MultiBinary(2)).press("w").dtype == np.int8
    for space in (Box(-1, 1, (2,)), MultiDiscrete([2] * 5), MultiDiscrete([11])):
        with pytest.raises(ValueError, match="--me "):
            Keys(space)


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Acrobot-v1", "Blackjack-v1"])
def test_meanings_of_gymnasiums_own_environments_are_known(name):
    env = gymnasium.make(name)
    assert len(meanings_of(env)) == env.action_space.n


@pytest.fixture
def typist():
    """A keyboard, and a function that presses its keys."""
    ours, theirs = pty.openpty()
    with open(theirs, closefd=False) as stream, Keyboard(stream) as keyboard:
        keyboard.press = lambda sent: os.write(ours, sent)
        yield keyboard
    os.close(ours)
    os.close(theirs)


def test_keys_are_read_one_by_one(typist):
    typist.press(b"aZ \x1b[D\x1bOC\x1b[1;5A\x1b[3~\xc3\xa4\r\x7f\x01x\x04")
    assert [typist.read() for _ in range(10)] == ["a", "z", SPACE, LEFT, RIGHT, "ä", ENTER, ERASE, "x", END]
    assert typist.read(time.perf_counter() + 0.01) is None
    typist.press(b"\x1b")
    assert typist.read() == END
    typist.press(b"\x1b\x1b[A")
    assert [typist.read(), typist.read()] == [END, UP]


def test_a_key_whose_bytes_come_apart_is_one_key(typist):
    typist.press(b"\x1b")
    read, wait = typist._more, iter([b"[", b"A"])

    def more(until):
        part = next(wait, None)
        if part:
            typist.press(part)
        return read(until)

    typist._more = lambda until: read(until)
    assert read(None)
    typist._more = more
    assert typist.read() == UP


class Steps(gymnasium.Env):
    """Notes the actions that it gets; ends after `length` steps, and forbids action 0."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it
    observation_space = Box(0, 1, (1,))

    def __init__(self, space, length=3, masked=False):
        self.action_space, self.length, self.masked, self.actions = space, length, masked, []

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), self._infos()

    def step(self, action):
        self.actions.append(np.asarray(action).tolist())
        self.count += 1
        return np.zeros(1, np.float32), 2.0, self.count == self.length, False, self._infos()

    def render(self):
        return f"after {self.count}"

    def _infos(self):
        return {"action_mask": np.array([0, 1, 1], np.int8)} if self.masked else {}


def play(typist, env, keys, meanings=(), **given):
    """Play by keys pressed beforehand, until they are used up; returns the results, and what the screen showed."""
    typist.press(keys + b"\x04")
    results, shown = [], io.StringIO()
    game = Game(env, Keys(env.action_space, meanings), Screen(shown), typist, given)
    with suppress(Ended):
        game.play(results)
    return results, shown.getvalue()


def test_slow_environments_wait_for_a_key_and_episodes_for_enter(typist):
    env = Steps(Discrete(3))
    results, shown = play(typist, env, b"01?2\x1b[A\r11")
    assert env.actions == [0, 1, 2, 1, 1]
    assert results == ["episode 1: over after 3 steps, return 6"]
    assert "Enter again" in shown
    assert "0 action 0" in shown


def test_a_number_of_episodes_ends_by_itself(typist):
    env = Steps(Discrete(3), length=1)
    results, _ = play(typist, env, b"1\r2", episodes=2)
    assert env.actions == [1, 2]
    assert len(results) == 2


def test_actions_that_are_not_legal_are_refused(typist):
    env = Steps(Discrete(3), masked=True)
    _, shown = play(typist, env, b"0010")
    assert env.actions == [1]
    assert "not legal" in shown


def test_choices_are_put_together_and_numbers_typed(typist):
    several = Steps(MultiDiscrete([3, 3]))
    play(typist, several, b"2w\r\r3\r", fps=1)
    assert several.actions == [[1, 1], [1, 1], [2, 1]]
    many = Steps(Discrete(200))
    play(typist, many, b"12\x7f3\r\r999\r7\r", fps=50)
    assert many.actions == [13, 7]


def test_fast_environments_step_by_themselves_from_the_first_key_on(typist):
    env = Steps(Discrete(3), length=30)
    results, shown = play(typist, env, b"1", ("left", "right", "stay"), fps=500)
    assert env.actions == []  # no key of these
    assert "a key begins" in shown
    typist.press(b"d")
    game = Game(
        env, Keys(Discrete(3), ("left", "right", "stay")), Screen(io.StringIO()), typist, {"fps": 250, "episodes": 1}
    )
    game.play(results)
    assert env.actions == [1] * 30  # 0.12 s, as long as a key counts at least
    held = Steps(Discrete(2), length=100)
    typist.press(b"a")
    game = Game(held, Keys(Discrete(2), ("left", "right")), Screen(io.StringIO()), typist, {"fps": 1000, "episodes": 1})
    game.play(results)
    assert held.actions == [0] * 100  # nothing to do for nobody: the last one goes on


def start(command, *arguments, size=(40, 120)):
    """A command in a terminal of this size; returns the process and both ends of the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        [*command, "play", *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    return process, ours, theirs


def read_until(handle, wanted, shown=b"", seconds=60):
    until = time.monotonic() + seconds
    while wanted not in shown and time.monotonic() < until:
        if select.select([handle], [], [], 0.1)[0]:
            shown += os.read(handle, 65536)
    assert wanted in shown
    return shown


@pytest.mark.parametrize("how", ["interrupt", "terminate", "fault"])
def test_the_terminal_is_as_it_was_before_however_a_game_ends(command, how, my_pole):
    if how == "fault":
        text = my_pole.read_text().replace("    step=original.step,\n", "    step=original.step,\n    draw=draw,\n")
        fault = "def draw(state, params, canvas):\n    print('drawn')\n    canvas.fog()\n\n\nenvironment"
        my_pole.write_text(text.replace("\nenvironment", f"\n{fault}", 1))
    process, ours, theirs = start(command, my_pole if how == "fault" else "CartPole-v1", "--me", "--seed", 3)
    try:
        before = termios.tcgetattr(theirs)
        if how == "fault":
            shown = read_until(ours, CLOSE.encode())
        else:
            shown = read_until(ours, b"a key begins")
            assert termios.tcgetattr(theirs) != before
            os.write(ours, b"\x1b[D")
            shown = read_until(ours, b"Enter again", shown)
            os.write(ours, {"interrupt": b"\x03", "terminate": b"\r"}[how])
            if how == "terminate":
                process.send_signal(signal.SIGTERM)
            shown = read_until(ours, CLOSE.encode(), shown)
        code = process.wait(timeout=30)
        shown = read_until(ours, b"\n", shown)
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.set_blocking(ours, False)
        with suppress(BlockingIOError):
            shown += os.read(ours, 65536)
        os.close(ours)
        os.close(theirs)
    opened, closed = shown.index(OPEN.encode()), shown.index(CLOSE.encode())
    assert opened < closed
    after = shown[closed:].decode()
    assert "Traceback" not in after
    if how == "fault":
        assert code == 2
        assert "drawn" in after  # what a program prints meanwhile is not lost, and does not disturb
        assert "a canvas has no 'fog'" in after
        assert b"drawn" not in shown[opened:closed]
    else:
        assert code == (128 + signal.SIGTERM if how == "terminate" else 0)
        assert "episode 1: over after" in after


@pytest.mark.parametrize("options", [["--best"], ["--window"], ["--stochastic"], ["--watch"]])
def test_options_of_agents_are_refused(refused, options):
    assert (
        refused("play", "CartPole-v1", "--me", *options)
        == f"error: {options[0]} is for agents: leave it out with --me\n"
    )


def test_what_a_person_cannot_play_is_told(refused):
    assert "missing ENV: try velocirl play CartPole-v1 --me" in refused("play", "--me")
    assert "run it in a terminal" in refused("play", "CartPole-v1", "--me")


def test_an_agent_is_watched_in_a_terminal(define):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    agent = velocirl.DQN(define(draw=draw, step=earn, max_steps=20), device="python", seed=0)
    shown = []
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        console = Console(file=stream, highlight=False, force_terminal=True, color_system="truecolor", width=60)
        reader = threading.Thread(target=lambda: shown.append(read_until(ours, b"steps, return 10\r\n", seconds=20)))
        reader.start()
        pace = Pace(1000)
        animate(console, moments(agent, "canvas", drawn=pace.shows), pace)
        reader.join()
    os.close(ours)
    text = shown[0].decode()
    assert text.startswith(OPEN)
    assert "48;2;200;30;40" in text[: text.index(CLOSE)]
    assert text.endswith(f"{CLOSE}episode 1: over after 20 steps, return 10\r\n")


def earn(state, params, action, rng):
    return 0.5, False


def draw(state, params, canvas):
    canvas.view(0, 4, 0, 4, width=40, height=40, background=(200, 30, 40))


def test_frames_are_left_out_where_steps_come_late(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    pace, seen = Pace(None), []
    for _ in range(100):  # steps that take twice as long as they may
        seen.append(pace.shows())
        pace.wait(50)
        now += 0.04
    assert 15 <= sum(seen) <= 25  # of 4 s, five frames a second and some until it is late
    pace, seen = Pace(None), []
    for _ in range(100):
        seen.append(pace.shows())
        now = pace.next(50)
    assert all(seen)
