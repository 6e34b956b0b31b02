"""Throughput of updates and waiting times, between two reports of a learner."""

from __future__ import annotations

from collections.abc import Mapping

EPOCH = 1000  # updates counted as an epoch: their time compares machines
TIME = "time/"  # prefix of metrics that differ from run to run
BATCHES, EPOCH_SECONDS = "batches_per_second", "epoch_seconds"
# Suffixes of names: of a gauge, of the derived fraction of the time, and of the metric for it.
WAITED, SHARE, WAITING = "/waiting_seconds", "/waiting_share", "_waiting"


class Throughput:
    """Rates between the reports of one call of `learn`, whose clock starts at zero each time."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._updates: int | None = None
        self._waited: dict[str, float] = {}

    def figures(self, elapsed: float, updates: int, gauges: Mapping[str, float]) -> dict[str, float | None]:
        """Return batches per second, seconds per epoch, and the fraction of the time that each side waited.

        `gauges` contains the seconds of waiting so far. The first report returns no metrics.
        """
        waited = {name: value for name, value in gauges.items() if name.endswith(WAITED)}
        since = elapsed - (self._elapsed if elapsed > self._elapsed else 0.0)
        known, before = self._updates, self._waited
        self._elapsed, self._updates, self._waited = elapsed, updates, waited
        if known is None or since <= 0.0:
            return {}
        made = max(updates - known, 0)
        shares = {
            TIME + name.removesuffix(WAITED) + WAITING: round(
                min(max(value - before.get(name, 0.0), 0.0) / since, 1.0), 4
            )
            for name, value in waited.items()
        }
        epoch = round(EPOCH * since / made, 4) if made else None
        return {TIME + BATCHES: round(made / since, 2), TIME + EPOCH_SECONDS: epoch, **shares}


def as_gauges(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return these metrics as gauges."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        short = name.removeprefix(TIME)
        if value is None or short == name:
            continue
        if short in (BATCHES, EPOCH_SECONDS):
            found[short] = value
        elif short.endswith(WAITING):
            found[short.removesuffix(WAITING) + SHARE] = value
    return found
