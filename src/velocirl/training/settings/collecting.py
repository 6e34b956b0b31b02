"""Settings of collectors: processes that act and step environments in parallel with the learner."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from velocirl.collect.collectors.consolidating import rounds_of_batch
from velocirl.collect.collectors.ring import LEAST_SLOTS
from velocirl.collect.collectors.setup import environment_bytes
from velocirl.training.settings.config import DeepConfig, require, require_whole


@dataclass(frozen=True)
class CollectorsConfig(DeepConfig):
    """Additional settings of algorithms that step environments."""

    fixed: ClassVar[frozenset[str]] = frozenset({"collector_timeout"})
    collectors: int | None = None
    """Number of processes that act and step gym: environments while the learner learns, each with an equal share of
    the copies. Without it, both take turns."""
    collect_mode: Literal["paced", "free"] = "paced"
    """How collectors keep step with the learner: paced, they are so far ahead of it and no further, and the same seed
    gives the same result; free, none ever waits, and what the learner has no room for is dropped."""
    collect_ahead: int | None = None
    collector_restarts: int = 10
    """Number of collectors that are replaced in a training, where they fail or hang, before that is an error."""
    collector_timeout: float = 60.0
    """Seconds without a step after which a collector is taken to hang."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 1024, "collectors")
        require_whole(self, 0, 1024, "collect_ahead")
        require_whole(self, 0, 2**31 - 1, "collector_restarts")
        require(0 < self.collector_timeout < inf, "collector_timeout", self.collector_timeout, "above 0")


@dataclass(frozen=True)
class CollectingConfig(CollectorsConfig):
    """Additional settings of off-policy algorithms for collectors."""

    collect_mode: Literal["paced", "free"] = "paced"
    """How collectors keep step with the learner: paced holds train_every and gradient_steps exactly, and gives the same
    result for the same seed; free never lets a collector wait, drops what the learner has no room for, and leaves
    updates out that it has no time for."""
    collect_ahead: int | None = None
    """Number of steps that paced collectors are ahead of the learner: with 0 they act by the newest weights, as without
    collectors, and so take turns with it. Chosen automatically if not given: 0 for one collector, else 2."""
    publish_every: int | None = None
    """Number of updates after which collectors are given the weights. If not given, 1 for paced collectors and 32 for
    free ones."""
    ring_size: int = 8192
    """Number of transitions that each free collector has room for before the learner takes them. Paced ones need
    room for a few steps only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "publish_every", "ring_size")


def check_collectors(config: Any, source: Any) -> None:
    """Raise for collectors with an environment or settings that do not support them."""
    collectors, copies = config.collectors, config.num_envs
    if collectors is None:
        return
    if os.name != "posix":
        raise ValueError("collectors are processes that need Linux or macOS: leave collectors out here")
    if source.native is not None:
        raise ValueError(
            f"{source.id} is compiled, and steps faster than processes could tell of it: leave collectors out, and on a"
            " GPU give overlap=True, which takes steps while updates run"
        )
    if copies % collectors:
        raise ValueError(
            f"num_envs={copies} copies cannot be shared out evenly to collectors={collectors}: give a multiple of"
            f" {collectors} as num_envs"
        )
    if config.workers:
        raise ValueError("workers and collectors are both processes that step environments: leave workers out")
    environment_bytes(source)


def check_rings(config: Any) -> None:
    """Raise if the collectors' queues are smaller than a batch."""
    if config.collectors is None:
        return
    share = max(config.num_envs // config.collectors, 1)
    least = max(config.effective_batch_size, (LEAST_SLOTS + rounds_of_batch(share)) * share)
    if config.ring_size < least:
        raise ValueError(
            f"ring_size={config.ring_size} is smaller than a batch: give at least {least}, for batch_size="
            f"{config.effective_batch_size} and {share} copies of each collector"
        )
