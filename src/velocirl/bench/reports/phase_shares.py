"""Time fractions of training phases, from metadata entries of a result such as `phase:rollout/policy`."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.bench.results import Result
from velocirl.monitor.phases import ORDER, is_top, shares

PREFIX = "phase:"
LEAST, MOST = 1e-12, 1e12  # seconds, or any other unit; less than the minimum counts as nothing


@dataclass(frozen=True)
class Segment:
    """Time fraction of a phase without subphases, or the remainder of a phase not covered by its subphases."""

    path: str
    share: float
    rest: bool = False  # of a phase whose subphases are listed too


def phases_of(result: Result) -> dict[str, float]:
    """Return the fraction of all time by path; empty if a result has none, or none above zero."""
    told = {
        key.removeprefix(PREFIX): float(value)
        for key, value in result.metadata.items()
        if key.startswith(PREFIX) and isinstance(value, int | float) and (value == 0 or LEAST <= value < MOST)
    }
    return shares(told) if any(is_top(path) and share > 0.0 for path, share in told.items()) else {}


def segments(phases: dict[str, float]) -> list[Segment]:
    """Split all time into the finest known phases, in the order of training."""
    known = [path for path in ORDER if path in phases]
    found = []
    for top in filter(is_top, [*known, *(path for path in phases if path not in ORDER)]):
        parts = [path for path in (*known, *(path for path in phases if path not in ORDER)) if _within(path, top)]
        together = sum(phases[path] for path in parts)
        scale = min(1.0, phases[top] / together) if together > 0.0 else 0.0
        found += [Segment(path, phases[path] * scale) for path in parts]
        found.append(Segment(top, phases[top] - together * scale, rest=bool(parts)))
    return [segment for segment in found if segment.share > 1e-9]


def _within(path: str, top: str) -> bool:
    return path.startswith(f"{top}/") and path.count("/") == 1
