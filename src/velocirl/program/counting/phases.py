"""Time spent per phase: the counters' indices, and the names under which they are reported.

Steps and updates may take microseconds, so only one in N is timed (see `engine.compiler.counters`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from velocirl.engine.compiler.counters import ALWAYS, FIRST_KIND, PLACES, SECOND_KIND, Count

ROUND, EVERY_ROUND, UPDATE, EVERY_UPDATE = FIRST_KIND, 13, SECOND_KIND, 13
STEPPING, LEARNING = PLACES, PLACES + 1  # total time of each
POLICY, ENVIRONMENT, BUFFER, LAST_VALUES = range(PLACES + 2, PLACES + 6)
GATHER, FORWARD, LOSS, BACKWARD, OPTIMISER = range(PLACES + 6, PLACES + 11)
WAITING, SAMPLE, ESTIMATE, SHUFFLE = range(PLACES + 11, PLACES + 15)


class Places(NamedTuple):
    """Counter indices of phases and turns, by name."""

    phases: Mapping[str, int]
    turns: Mapping[str, tuple[int, int]]  # the kind of turn, and the number of turns per timed one


PLACES_OF_TIME = Places(
    phases={
        "policy": POLICY,
        "environment": ENVIRONMENT,
        "buffer": BUFFER,
        "last_values": LAST_VALUES,
        "learning": LEARNING,
        "sample": SAMPLE,
        "estimate": ESTIMATE,
        "shuffle": SHUFFLE,
    },
    turns={"round": (ROUND, EVERY_ROUND), "update": (UPDATE, EVERY_UPDATE)},
)

ROLLOUT_COUNTS = (
    Count("policy", POLICY, ROUND),
    Count("policy", LAST_VALUES, ALWAYS),
    Count("environment", ENVIRONMENT, ROUND),
    Count("buffer", BUFFER, ROUND),
)
UPDATE_COUNTS = (
    Count("sample", SAMPLE, UPDATE),
    Count("gather", GATHER, UPDATE),
    Count("gather", SHUFFLE, ALWAYS),
    Count("forward", FORWARD, UPDATE),
    Count("forward", ESTIMATE, ALWAYS),  # again in each epoch, if an estimator depends on the policy
    Count("loss", LOSS, UPDATE),
    Count("backward", BACKWARD, UPDATE),
    Count("optimiser", OPTIMISER, UPDATE),
    Count("waiting", WAITING, UPDATE),
)


def add(phases: MutableMapping[str, float], path: str, seconds: float) -> None:
    """Add seconds to a phase."""
    phases[path] = phases.get(path, 0.0) + seconds


def add_parts(phases: MutableMapping[str, float], parent: str, seconds: float, parts: Mapping[str, float]) -> None:
    """Add seconds to the parts of a phase that took `seconds`; parts whose sum exceeds it are scaled down."""
    together = sum(parts.values())
    scale = max(seconds, 0.0) / together if together > max(seconds, 0.0) else 1.0
    for name, spent in parts.items():
        add(phases, f"{parent}/{name}", spent * scale)
