"""Human play in a terminal: `velocirl play ENV --me`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from velocirl.cli.named.environment_files import choose
from velocirl.cli.play.keyboard import END, ENTER, ERASE, Keyboard
from velocirl.cli.play.keys import Keys, meanings_of, wrapped
from velocirl.cli.play.showing import Pace, open_screen, told
from velocirl.training.actors.playing import Moment, rate_of
from velocirl.training.source import Source
from velocirl.vector.rendering import CANVAS

if TYPE_CHECKING:
    from rich.console import Console

    from velocirl.monitor.screen import Screen

OF_AGENTS = ("best", "latest", "env", "stochastic", "window", "watch", "first")  # options that apply only to agents
TURNS_BELOW = 5  # steps per second; slower environments wait for a key
HELD = 0.15  # seconds that a key counts, if there is an idle action


class Ended(Exception):  # noqa: N818 - not a fault
    """The user pressed Escape."""


def play_yourself(given: Mapping[str, Any]) -> None:
    """Play episodes of an environment from the keyboard, until the user stops."""
    for name in OF_AGENTS:
        if name in given:
            raise ValueError(f"--{name} is for agents: leave it out with --me")
    if "model" not in given:
        raise ValueError("missing ENV: try velocirl play CartPole-v1 --me (velocirl envs lists all)")
    from velocirl.monitor.console import make_console

    console = make_console()
    if not (console.is_terminal and sys.stdin.isatty()):
        raise ValueError("--me reads keys as they are pressed: run it in a terminal")
    source, results = Source(choose(given["model"]).environment), []
    try:
        with closing(source.make_shown(_mode(console, source))) as env:
            keys = Keys(env.action_space, meanings_of(env))
            with _ended_by_signals(), open_screen(console) as screen, Keyboard() as keyboard:
                Game(env, keys, screen, keyboard, given).play(results)
    except (Ended, KeyboardInterrupt):
        pass
    except (gymnasium.error.Error, RuntimeError) as error:
        raise ValueError(f"{source.id} cannot be shown: {error}") from error
    finally:
        for line in results:
            console.print(line, markup=False, soft_wrap=True)
    if not results:
        console.print("no episode was finished")


class Game:
    """Episodes of one environment, played from a keyboard."""

    def __init__(
        self, env: gymnasium.Env, keys: Keys, screen: Screen, keyboard: Keyboard, given: Mapping[str, Any]
    ) -> None:
        self._env, self._keys, self._screen, self._keyboard = env, keys, screen, keyboard
        self._episodes, self._seed = given.get("episodes"), given.get("seed")
        self._fps = given.get("fps") or rate_of(env)
        self._turns = self._fps < TURNS_BELOW or keys.typed
        self._mask: Any = None
        self._action: Any = None
        self._pressed = 0.0  # time of the last key with an action
        self._typed = ""

    def play(self, results: list[str]) -> None:
        """Play all episodes; appends a line to `results` for each one that ends."""
        episode = 0
        while self._episodes is None or episode < self._episodes:
            one = self._play_episode(episode)
            results.append(told(one))
            episode += 1
            if episode != self._episodes:
                self._show(one, ["Enter again   Esc end"])
                while self._read(None) != ENTER:
                    pass

    def _play_episode(self, episode: int) -> Moment:
        _, infos = self._env.reset(seed=None if self._seed is None else self._seed + episode)
        one = Moment(self._env.render(), episode, 0, 0.0, False, self._fps)
        self._mask = infos.get("action_mask")
        self._action, self._pressed = None, 0.0
        pace = Pace(None)
        while not one.ended:
            if self._turns or self._action is None:
                action = self._wait_for_action(one)
                pace = Pace(None)
            else:
                action = self._action_at(pace.next(self._fps))
            _, reward, terminated, truncated, infos = self._env.step(action)
            self._mask = infos.get("action_mask")
            ended = bool(terminated or truncated)
            picture = self._env.render() if ended or self._turns or pace.shows() else None
            one = Moment(picture, episode, one.step + 1, one.total + float(reward), ended, self._fps)
            if picture is not None:
                self._show(one)
        return one

    def _wait_for_action(self, one: Moment) -> Any:
        """Wait for a key that has an action; in real time, only before the first step of an episode."""
        note = "" if self._turns else "a key begins"
        while True:
            self._show(one, [note or (f"action: {self._typed}" if self._typed else "")])
            key = self._read(None)
            assert key is not None  # noqa: S101 - without a time limit there is one
            action = self._type(key) if self._keys.typed else self._keys.press(key)
            if self._keys.sent and self._turns:
                action = self._keys.action if key == ENTER else None
            if action is None:
                continue
            if self._is_legal(action):
                self._action, self._pressed = action, time.perf_counter()
                return action
            note = "that action is not legal here"

    def _action_at(self, due: float) -> Any:
        """Read keys until a step is due; returns the newest action, or the idle action if no key is pressed."""
        new = False
        while (key := self._read(due)) is not None:
            action = self._keys.press(key)
            if action is not None and self._is_legal(action):
                self._action, self._pressed, new = action, time.perf_counter(), True
        held = new or time.perf_counter() < self._pressed + HELD or self._keys.idle is None
        action = self._action if held else self._keys.idle
        legal = self._is_legal(action)
        return action if legal else self._keys.start + int(np.flatnonzero(np.asarray(self._mask))[0])

    def _type(self, key: str) -> Any:
        """Compose the number of an action; returns it after Enter."""
        start, stop = self._keys.start, self._keys.start + self._keys.count
        if key == ENTER and self._typed:
            number, self._typed = int(self._typed), ""
            return number if start <= number < stop else None
        if key == ERASE:
            self._typed = self._typed[:-1]
        elif key.isdecimal() and len(self._typed) < len(str(stop)):
            self._typed += key
        return None

    def _is_legal(self, action: Any) -> bool:
        mask = self._mask
        if mask is None or np.ndim(action) or not np.any(mask):
            return True
        return bool(mask[int(action) - self._keys.start])

    def _read(self, until: float | None) -> str | None:
        key = self._keyboard.read(until)
        if key == END:
            raise Ended
        return key

    def _show(self, one: Moment, notes: list[str] | None = None) -> None:
        columns, _ = self._screen.size
        lines = [told(one), *(notes or [""]), *self._keys.lines(columns)]
        self._screen.show(one.picture if one.picture is not None else "", wrapped_lines(lines, columns))


def wrapped_lines(lines: list[str], width: int) -> list[str]:
    """Wrap lines to a width."""
    return [part for line in lines for part in (wrapped(line.split("   "), width) if line else [""])]


def _mode(console: Console, source: Source) -> str:
    """Return the render mode in which a terminal shows an environment."""
    from velocirl.monitor.console import shows_pictures

    pictures = shows_pictures(console)
    if source.native is not None:
        return CANVAS if pictures and source.native.draw is not None else "ansi"
    with closing(source.make_shown(None)) as env:
        modes = env.metadata.get("render_modes", [])
    for mode in ("rgb_array", "ansi") if pictures else ("ansi",):
        if mode in modes:
            return mode
    shown = "pictures, which this terminal has no colors for" if "rgb_array" in modes else "nothing that a terminal has"
    raise ValueError(f"{source.id} shows {shown}: set TERM=xterm-256color, or watch it in a window")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the game cleanly while this context lasts, so that the terminal is restored."""

    def end(number: int, frame: Any) -> None:  # noqa: ARG001 - a handler's signature
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
