"""`velocirl monitor`: live state of a run, from another terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from velocirl.cli.parsing import Parser, number
from velocirl.monitor.advice import advise
from velocirl.monitor.heartbeat_file import HeartbeatState, read_heartbeat
from velocirl.runs.directory import RunDescription, RunNotFoundError, RunSummary, _read, list_runs
from velocirl.runs.finding import find_run

INTERVAL = 1.0  # seconds
SHORTEST, LONGEST = 0.1, 3600.0
ENDING = 0.2  # seconds from the final status of a run to its last heartbeat, at most


@dataclass(frozen=True)
class Sight:
    """State of a run at one moment."""

    path: Path
    description: RunDescription
    status: str  # "interrupted" for a run that was killed
    heartbeat: HeartbeatState | None
    age: float | None  # seconds since the heartbeat

    @property
    def running(self) -> bool:
        """True if the run continues."""
        return self.status == "running"

    @property
    def compiling(self) -> bool:
        """True if the run is still compiling or loading code before training."""
        return self.running and self.heartbeat is not None and self.heartbeat.compiling

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds; None if unknown."""
        return self.heartbeat.seconds_left if self.heartbeat is not None and self.running else None


def monitor(arguments: Sequence[str]) -> None:
    """Show the state of a run until it ends."""
    given = _parser().parse(arguments)
    interval = given.get("interval", INTERVAL)
    if not SHORTEST <= interval <= LONGEST:
        raise ValueError(f"--interval must be from {SHORTEST:g} to {LONGEST:g} seconds, got {interval:g}")
    path = _find(given.get("run"))
    sights = iter([look(path)]) if "once" in given else watch(path, interval)
    if "json" in given:
        for sight in sights:
            print(json.dumps(as_json(sight), allow_nan=False), flush=True)
        return
    from velocirl.cli.monitor.picture import show, show_lines, show_live
    from velocirl.monitor.console import make_console  # rendering is imported only when needed

    console = make_console()
    if "once" in given:
        show(console, next(sights))
    elif console.is_terminal:
        show_live(console, sights)
    else:
        show_lines(console, sights)


def look(path: Path) -> Sight:
    """Read the current state of the run in a directory, without changing anything."""
    description = _read(path)
    status = RunSummary(path.name, path, description).status
    heartbeat = read_heartbeat(path)
    return Sight(
        path, description, status, heartbeat, None if heartbeat is None else max(time.time() - heartbeat.time, 0.0)
    )


def watch(path: Path, interval: float) -> Iterator[Sight]:
    """Yield the state of a run at each interval until it has ended; the last one is its final state."""
    while (sight := look(path)).running:
        yield sight
        time.sleep(interval)
    if sight.heartbeat is not None and sight.heartbeat.status == "running" and sight.status != "interrupted":
        time.sleep(ENDING)
        sight = look(path)
    yield sight


def as_json(sight: Sight) -> dict[str, Any]:
    """Convert to JSON values; unknown ones are null."""
    description, heartbeat = sight.description, sight.heartbeat
    left = sight.seconds_left
    return {
        "run": sight.path.name,
        "path": str(sight.path),
        "environment": description.environment,
        "algorithm": description.algorithm,
        "seed": description.seed,
        "status": sight.status,
        "compiling": sight.compiling,
        "time": heartbeat and heartbeat.time,
        "age_seconds": None if sight.age is None else round(sight.age, 3),
        "pid": heartbeat and heartbeat.pid,
        "steps": heartbeat and heartbeat.steps,
        "total_steps": heartbeat.total if heartbeat else description.plan and description.plan.total_steps,
        "progress": heartbeat and round(heartbeat.progress, 4),
        "steps_per_second": heartbeat and heartbeat.steps_per_second,
        "seconds_left": None if left is None else round(left, 1),
        "return": heartbeat and heartbeat.mean_return,
        "phases": heartbeat and heartbeat.phases,
        "resources": heartbeat and msgspec.to_builtins(heartbeat.resources),
        "gauges": heartbeat and heartbeat.gauges,
        "advice": heartbeat and advise(heartbeat.gauges, heartbeat.phases, heartbeat.resources),
    }


def _find(name: str | None) -> Path:
    """Return the directory of a run by name, or of the newest one running."""
    if name is not None:
        return find_run(name).path
    for summary in list_runs():
        if summary.status == "running":
            return summary.path
    raise RunNotFoundError(
        "no run is going on: velocirl runs lists those there are, velocirl monitor RUN shows how one ended"
    )


def _parser() -> Parser:
    parser = Parser("monitor [RUN]", "Watch a run from another terminal until it ends.")
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="A run: its directory, name, or the beginning of its name (default: the newest one running)",
    )
    parser.add_argument("--once", action="store_true", help="Show the current state once and exit")
    parser.add_argument(
        "--interval", type=number, metavar="SECONDS", help=f"Seconds between updates (default: {INTERVAL:g})"
    )
    parser.add_argument("--json", action="store_true", help="Print lines of JSON")
    return parser
