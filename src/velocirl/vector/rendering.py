"""Rendering of an environment: as text, as an image, or in a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.engine.canvas import Canvas
from velocirl.engine.checking.telling import described, failed
from velocirl.engine.environment import Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.fleets.lifecycle import Copies
from velocirl.engine.records import with_attributes

CANVAS = "canvas"  # a render mode in addition to Gymnasium's: the canvas itself, with its texts


class Renderer:
    """Renderer of one environment's states in one render mode."""

    def __init__(self, environment: Environment, render_mode: str | None) -> None:
        self.modes = ["ansi", "rgb_array", "human"] if environment.draw else ["ansi"]
        allowed = self.modes + [CANVAS] * bool(environment.draw)
        if render_mode is not None and render_mode not in allowed:
            raise ValueError(f"{environment.id} renders as {', '.join(self.modes)}; got {render_mode!r}")
        self.metadata = {"render_modes": self.modes, "render_fps": environment.render_fps}
        self._environment = environment
        self._mode = render_mode
        self._canvas = Canvas()
        self._window: Any = None

    def render(self, copies: Copies, copy: int, *, ended: bool = False) -> Any:
        """Render environment number `copy`, now or at its last episode's end: a string, an RGB array, or a window."""
        state = with_attributes(copies.final_state if ended else copies.state)[copy]
        params = with_attributes(copies.params)[copy]
        if self._mode == "ansi":
            return self._environment.text(state, params) if self._environment.text else _fields(state)
        if self._mode is None or self._environment.draw is None:
            return None
        self._draw(state, params)
        if self._mode == CANVAS:
            return self._canvas
        if self._mode == "rgb_array":
            return self._canvas.pixels
        if self._window is None:
            from velocirl.vector.window import Window  # imported only when a window is needed

            self._window = Window(self._environment.id)
        self._window.show(self._canvas.pixels, self._environment.render_fps)
        return None

    def _draw(self, state: Any, params: Any) -> None:
        """Let the environment draw; an error is reported with its line."""
        environment, draw = self._environment, self._environment.draw
        assert draw is not None  # noqa: S101 - asked before
        try:
            draw(state, params, self._canvas)
        except Exception as error:
            raise failed(environment, "draw", error) from error
        if not self._canvas.shapes.size:
            place = f"{draw.__code__.co_filename}:{draw.__code__.co_firstlineno}"
            what = "shows nothing; begin with canvas.view(left, right, bottom, top), which says what is to be seen"
            raise DefinitionError(described(environment.id, "draw", what, place))

    def close(self) -> None:
        """Close the window if one is open."""
        if self._window is not None:
            self._window.close()
            self._window = None


def _fields(state: Any) -> str:
    """Format the fields of the state in one line, for environments without a text of their own."""
    values = [f"{name} {np.array2string(np.asarray(state[name]), precision=3)}" for name in state.dtype.names]
    return ", ".join(values)
