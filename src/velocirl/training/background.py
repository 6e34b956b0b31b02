"""A thread for one rollout at a time, beside whoever learns."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CollectingThread:
    """One thread, which sleeps between rollouts; it ends with its owner, or after its rollout with Python."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process: int | None = None

    def begin(self, collect: Callable[..., None], *arguments: Any) -> Future[None]:
        """Start a rollout."""
        if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = ThreadPoolExecutor(1, "velocirl-collecting"), os.getpid()
        return self._executor.submit(collect, *arguments)
