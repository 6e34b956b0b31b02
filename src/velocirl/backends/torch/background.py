"""Background collection on a second CUDA stream during learning on the first."""

from __future__ import annotations

from collections.abc import Callable

import torch


class StreamBackground:
    """Second CUDA stream, on which the rollout is a graph."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.full = False
        self._learning, self.stream = stream, torch.cuda.Stream()

    @property
    def holds(self) -> bool:
        """True if an unused rollout exists or is being collected."""
        return self.full

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout, ordered after the learning stream's work so far."""
        self.full = True
        self.stream.wait_stream(self._learning)
        with torch.cuda.stream(self.stream):
            collect()

    def join(self) -> None:
        """Let the learning stream wait for the rollout."""
        self.full = False
        self._learning.wait_stream(self.stream)

    def wait(self) -> None:
        """Wait on the host for the rollout."""
        self.stream.synchronize()

    def gauges(self) -> dict[str, float]:
        """Return no gauges: streams wait for each other without the host."""
        return {}
