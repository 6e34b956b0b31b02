"""Groups of options in `velocirl train --help`, most frequently changed ones first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

ENVIRONMENT, NETWORK, TABLE, LEARNING, RUNNING = "environment", "network", "table", "learning", "running"
# In display order. Settings in no group are appended to the learning group.
GROUPS: dict[str, tuple[str, ...]] = {
    ENVIRONMENT: (
        "num_envs", "data", "data_sha256", "scenario", "params", "preprocess", "skip", "stack", "workers", "check",
        "trust",
    ),
    NETWORK: (
        "hidden", "critic_hidden", "activation", "layer_norm", "network", "critic", "critic_layer_norm", "shared",
        "initialiser", "compile",
    ),
    TABLE: ("storage", "dtype", "initial_value"),
    LEARNING: (
        "learning_rate", "learning_rate_schedule", "schedules", "gamma", "horizon", "epochs", "minibatch_size", "clip",
        "entropy_coefficient", "gae_lambda", "buffer_size", "batch_size", "learning_starts", "train_every",
        "gradient_steps", "exploration", "exploration_rate", "exploration_schedule", "exploration_initial",
        "exploration_final", "exploration_fraction", "temperature", "noise", "n_step", "priority", "optimiser",
        "max_grad_norm",
    ),
    RUNNING: (
        "seed", "seeds", "device", "runtime", "run_dir", "exist", "evaluate_every", "target_return",
        "checkpoint_every", "threads", "precision", "overlap", "collectors", "collect_mode", "collect_ahead",
        "publish_every", "ring_size", "collector_restarts", "collector_timeout", "buffer_file", "pin", "steps_per_sync",
        "quiet", "json",
    ),
}  # fmt: skip


def grouped(config: type[Any], others: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the names of a configuration's settings, and of `others` that a group lists, by group."""
    settings = [field.name for field in dataclasses.fields(config)]
    known = {*settings, *others}
    found = {group: [name for name in names if name in known] for group, names in GROUPS.items()}
    placed = {name for names in found.values() for name in names}
    found[LEARNING] += [name for name in settings if name not in placed]
    return {group: names for group, names in found.items() if names}
