"""Collecting on a second stream of a GPU while somebody learns on the first."""

from __future__ import annotations

from collections.abc import Callable

import torch


class StreamBackground:
    """A second stream; the rollout is a graph there."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.full = False
        self._learning, self.stream = stream, torch.cuda.Stream()

    @property
    def holds(self) -> bool:
        """Whether there is a rollout, once it is done."""
        return self.full

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout."""
        self.full = True
        self.stream.wait_stream(self._learning)
        with torch.cuda.stream(self.stream):
            collect()

    def join(self) -> None:
        """Let the learning stream wait for it."""
        self.full = False
        self._learning.wait_stream(self.stream)

    def wait(self) -> None:
        """Wait for it."""
        self.stream.synchronize()

    def gauges(self) -> dict[str, float]:
        """Nothing: streams wait for each other without a word to the host."""
        return {}
