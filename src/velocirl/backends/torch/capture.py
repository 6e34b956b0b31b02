"""Work of a GPU that is recorded as graphs, with calls of the host between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch


class Capture:
    """Records what is done while it lasts; nothing is done then. Mostly that is one graph."""

    def __init__(self, stream: Any, pool: Any, mode: str) -> None:
        """Of a stream, with the memory of other graphs; `mode` is what other threads may do meanwhile, as CUDA says."""
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
        """Let the host do something here: one graph ends, and another begins."""
        self.__exit__(None, None, None)
        self._steps.append(function)
        self.__enter__()

    @property
    def replay(self) -> Callable[[], None]:
        """What does all that was recorded."""
        steps = self._steps
        if len(steps) == 1:
            return steps[0]

        def run() -> None:
            for step in steps:
                step()

        return run
