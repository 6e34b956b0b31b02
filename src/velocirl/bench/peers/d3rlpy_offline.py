"""TD3+BC and IQL of d3rlpy on synthetic transitions; runs in its own Python, since d3rlpy pins other libraries."""

from __future__ import annotations

from collections.abc import Callable

import d3rlpy  # pyright: ignore[reportMissingImports] - a peer, where installed
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

EPISODES, LENGTH = 100, 1000


def td3_bc(updates: int, threads: int, observed: int, acted: int) -> Callable[[], None]:
    """Return a call that makes `updates` updates of TD3+BC with its defaults: batches of 256, networks of 256x256."""
    return _training(d3rlpy.algos.TD3PlusBCConfig(), updates, threads, observed, acted)


def iql(updates: int, threads: int, observed: int, acted: int) -> Callable[[], None]:
    """Return a call that makes `updates` updates of IQL with its defaults."""
    return _training(d3rlpy.algos.IQLConfig(), updates, threads, observed, acted)


def _training(config, updates: int, threads: int, observed: int, acted: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    generator, count = np.random.default_rng(0), EPISODES * LENGTH
    data = d3rlpy.dataset.MDPDataset(
        observations=generator.standard_normal((count, observed), np.float32),
        actions=generator.uniform(-1, 1, (count, acted)).astype(np.float32),
        rewards=generator.standard_normal(count, np.float32),
        terminals=np.zeros(count, np.float32),
        timeouts=(np.arange(1, count + 1) % LENGTH == 0).astype(np.float32),
    )
    learner = config.create(device="cpu:0")
    learner.build_with_dataset(data)

    def call() -> None:
        # the work of its `fit`, without the files and the progress bar
        for _ in range(updates):
            learner.update(data.sample_transition_batch(learner.batch_size))

    return call
