"""CUDA graph capture, with host calls between graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch


class Capture:
    """Context that captures GPU work without running it, usually as one graph."""

    def __init__(self, stream: Any, pool: Any, mode: str) -> None:
        """Capture on `stream`, with the memory `pool` of other graphs; `mode` is CUDA's capture error mode.

        The mode determines which CUDA calls other threads may make during capture.
        """
        self.pool, self._stream, self._mode = pool, stream, mode
        self._steps: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._graph = torch.cuda.CUDAGraph()
        self._context: Any = torch.cuda.graph(
            self._graph, pool=self.pool, stream=self._stream, capture_error_mode=self._mode
        )
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)
        self.pool = self._graph.pool()
        self._steps.append(self._graph.replay)

    def cut(self, function: Callable[[], None]) -> None:
        """Insert a host call: end the current graph, and begin another."""
        self.__exit__(None, None, None)
        self._steps.append(function)
        self.__enter__()

    @property
    def replay(self) -> Callable[[], None]:
        """Function that replays everything captured."""
        steps = self._steps
        if len(steps) == 1:
            return steps[0]

        def run() -> None:
            for step in steps:
                step()

        return run
