"""Super Mario Bros. from gym-super-mario-bros, as `gym:NES/...`.

The package's last version supports neither Gymnasium nor NumPy 2. It is not modified: subclasses replace the emulator's
constructor, which fails, and the RAM buffer.
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
    """Emulator that skips parsing the ROM's header, which overflows the bytes of NumPy 2."""

    def __init__(self, rom_path: str) -> None:
        self._env = nes_env._LIB.Initialize(rom_path)
        self.viewer, self.done, self._has_backup = None, True, False
        self.controllers = [self._controller_buffer(port) for port in range(2)]
        self.screen, self.ram = self._screen_buffer(), self._ram_buffer()

    def _ram_buffer(self) -> memoryview:
        """Return the RAM with bytes as Python integers: NumPy 2's overflow where positions are computed."""
        return memoryview(super()._ram_buffer())


class _Game(SuperMarioBrosEnv, _Console):  # in this order, the game constructs the console above
    """The package's game on the patched emulator."""


class SuperMarioBros(gymnasium.Env):
    """Super Mario Bros., whole or a single stage, with Gymnasium's interface; each action is a combination of buttons.

    `rom_mode` selects the graphics: vanilla, downsample, pixel, rectangle. `movement` selects the action set: right,
    simple or complex.
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
        """Begin the game or the stage, which is the same for all seeds."""
        super().reset(seed=seed, options=options)
        return self._game.reset().copy(), self._info(self._game._get_info())

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Press the buttons of an action for one frame."""
        screen, reward, done, info = self._game.step(self._buttons[int(action)])
        return screen.copy(), float(reward), done, False, self._info(info)  # copied: the emulator owns the memory

    def render(self) -> Any:
        """Return the screen."""
        return self._game.screen.copy()

    def get_action_meanings(self) -> list[str]:
        """Return the names of each action's buttons."""
        return self._meanings

    def close(self) -> None:
        """Close the emulator."""
        if self._game._env is not None:
            self._game.close()

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the infos with `lives` counted as in ALE: none where the RAM's byte is -1."""
        return {**info, "lives": (int(info["life"]) + 1) % 256}


def _register() -> None:
    stages = {f"-{world}-{stage}": (world, stage) for world in WORLDS for stage in STAGES}
    for name, target in {"": None, **stages}.items():
        entry_point = f"{__name__}:{SuperMarioBros.__name__}"
        gymnasium.register(f"NES/SuperMarioBros{name}-v0", entry_point=entry_point, kwargs={"target": target})


_register()
