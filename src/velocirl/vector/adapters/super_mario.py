"""Super Mario Bros. of gym-super-mario-bros, whose last version knows neither Gymnasium nor NumPy 2: `gym:NES/...`.

Nothing of that package is changed: its game stands on another start than the one that fails, and on other memory.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gym_super_mario_bros import actions as movements  # pyright: ignore[reportMissingImports] - installed by few
from gym_super_mario_bros.smb_env import SuperMarioBrosEnv  # pyright: ignore[reportMissingImports]
from gymnasium.spaces import Box, Discrete
from nes_py import nes_env  # pyright: ignore[reportMissingImports]
from nes_py.wrappers import JoypadSpace  # pyright: ignore[reportMissingImports]

WORLDS, STAGES = range(1, 9), range(1, 5)


class _Console(nes_env.NESEnv):
    """The emulator, begun without a look at the ROM's header, which overflows bytes of NumPy 2."""

    def __init__(self, rom_path: str) -> None:
        self._env = nes_env._LIB.Initialize(rom_path)
        self.viewer, self.done, self._has_backup = None, True, False
        self.controllers = [self._controller_buffer(port) for port in range(2)]
        self.screen, self.ram = self._screen_buffer(), self._ram_buffer()

    def _ram_buffer(self) -> memoryview:
        """The memory, whose bytes are Python's numbers: those of NumPy 2 overflow where positions are computed."""
        return memoryview(super()._ram_buffer())


class _Game(SuperMarioBrosEnv, _Console):  # in this order, the game begins the console above
    """The game of the package."""


class SuperMarioBros(gymnasium.Env):
    """A game, or one of its stages, with Gymnasium's interface; an action is one of a few combinations of buttons.

    `rom_mode` is how the screen is drawn: vanilla, downsample, pixel, rectangle; `movement`: right, simple or complex.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        rom_mode: str = "vanilla",
        target: tuple[int, int] | None = None,
        movement: str = "simple",
        render_mode: str | None = None,
    ) -> None:
        known = {name.partition("_")[0].lower(): buttons for name, buttons in vars(movements).items() if name.isupper()}
        if movement not in known:
            raise ValueError(f"movement must be one of {', '.join(known)}, got {movement!r}")
        self._game: Any = _Game(rom_mode=rom_mode, target=target)  # pyright: ignore[reportCallIssue] - not installed
        self._meanings = [" ".join(buttons) for buttons in known[movement]]
        self._buttons = [sum(JoypadSpace._button_map[one] for one in buttons) for buttons in known[movement]]
        self.observation_space = Box(0, 255, nes_env.SCREEN_SHAPE_24_BIT, np.uint8)
        self.action_space = Discrete(len(self._buttons))
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the game, or the stage, which is the same for all seeds."""
        super().reset(seed=seed, options=options)
        return self._game.reset().copy(), self._info(self._game._get_info())

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Press the buttons of an action for a frame."""
        screen, reward, done, info = self._game.step(self._buttons[int(action)])
        return screen.copy(), float(reward), done, False, self._info(info)  # the screen's memory is the emulator's

    def render(self) -> Any:
        """The screen."""
        return self._game.screen.copy()

    def get_action_meanings(self) -> list[str]:
        """The buttons of each action."""
        return self._meanings

    def close(self) -> None:
        """End the emulator."""
        if self._game._env is not None:
            self._game.close()

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """What is known of the game, with its lives as ALE counts them: none, where the memory has -1 in a byte."""
        return {**info, "lives": (int(info["life"]) + 1) % 256}


def _register() -> None:
    stages = {f"-{world}-{stage}": (world, stage) for world in WORLDS for stage in STAGES}
    for name, target in {"": None, **stages}.items():
        entry_point = f"{__name__}:{SuperMarioBros.__name__}"
        gymnasium.register(f"NES/SuperMarioBros{name}-v0", entry_point=entry_point, kwargs={"target": target})


_register()
