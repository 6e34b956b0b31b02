"""Phases of training: seconds by path; `update/forward` is a part of `update`."""

from __future__ import annotations

from collections.abc import Mapping

# Parents before their parts, in order of execution.
ORDER = (
    "rollout", "rollout/policy", "rollout/environment", "rollout/buffer",
    "estimate",
    "update", "update/sample", "update/gather", "update/forward", "update/loss", "update/backward", "update/optimiser",
    "update/waiting",
)  # fmt: skip


def is_top(path: str) -> bool:
    """Return whether a path is a top-level phase."""
    return "/" not in path


def shares(phases: Mapping[str, float]) -> dict[str, float]:
    """Return each phase's fraction of the total time; parts included, but only top-level phases count in the total."""
    total = sum(seconds for path, seconds in phases.items() if is_top(path))
    return {path: seconds / total if total > 0 else 0.0 for path, seconds in phases.items()}


def tree_lines(phases: Mapping[str, float]) -> list[tuple[int, str, float, float]]:
    """Return (depth, name, seconds, fraction of the total) per phase, followed by its parts; unknown names are last."""
    share_of = shares(phases)
    places = {path: place for place, path in enumerate((*ORDER, *(path for path in phases if path not in ORDER)))}

    def order(path: str) -> list[int]:
        parts = path.split("/")
        return [places.get("/".join(parts[: depth + 1]), len(places)) for depth in range(len(parts))]

    return [
        (path.count("/"), path.rpartition("/")[2], phases[path], share_of[path]) for path in sorted(phases, key=order)
    ]
