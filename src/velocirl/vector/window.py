"""Window that shows frames on the screen, through pygame."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

SMALLEST = 400  # pixels on the longer side: smaller frames are enlarged


class Window:
    """Window for frames, one per `show`; it opens with the first frame.

    The user may close it at any time: `closed` becomes true and further frames are not shown, but nothing stops.
    """

    def __init__(self, title: str = "velocirl") -> None:
        self.title = title
        self.closed = False
        self._screen: Any = None
        self._clock: Any = None

    def show(self, pixels: NDArray[np.uint8], fps: float) -> None:
        """Show one frame (height, width, 3), and wait to keep `fps` frames per second."""
        if self.closed:
            return
        pygame = _pygame()
        height, width, _ = pixels.shape
        enlarge = max(1, SMALLEST // max(height, width))
        size = (width * enlarge, height * enlarge)
        screen = self._screen
        if screen is None or screen.get_size() != size:
            screen = self._open(pygame, size)
        frame = pygame.surfarray.make_surface(pixels.swapaxes(0, 1))
        screen.blit(pygame.transform.scale(frame, size), (0, 0))
        pygame.display.flip()
        self._clock.tick(fps)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()

    def close(self) -> None:
        """Close the window; calling it again does nothing."""
        self.closed = True
        if self._screen is not None:
            self._screen = None
            _pygame().display.quit()

    def _open(self, pygame: Any, size: tuple[int, int]) -> Any:
        advice = 'there is no display to open a window on; use render_mode="rgb_array" and save or show the frames'
        try:
            pygame.display.init()
            # Without a display SDL falls back to a driver that draws nowhere; it is used only on explicit request.
            if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
                pygame.display.quit()
                raise RuntimeError(advice)
            self._screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise RuntimeError(f"{advice} ({error})") from error
        pygame.display.set_caption(self.title)
        self._clock = pygame.time.Clock()
        return self._screen


def _pygame() -> Any:
    """Import pygame when the first frame is shown: it is not needed otherwise."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise DependencyNotInstalled('showing a window needs pygame: pip install "velocirl[render]"') from error
    return pygame
