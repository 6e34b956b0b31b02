"""`velocirl monitor`: how a run stands at this moment, from another terminal."""

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
ENDING = 0.2  # seconds after which who says that it has ended has written its last heartbeat too


@dataclass(frozen=True)
class Sight:
    """A run as it is seen at one moment."""

    path: Path
    description: RunDescription
    status: str  # of a run that was killed it is "interrupted"
    heartbeat: HeartbeatState | None
    age: float | None  # seconds since the heartbeat

    @property
    def running(self) -> bool:
        """Whether there is more to come."""
        return self.status == "running"

    @property
    def compiling(self) -> bool:
        """Whether it has yet to begin: what training needs is compiled, or loaded."""
        return self.running and self.heartbeat is not None and self.heartbeat.compiling

    @property
    def seconds_left(self) -> float | None:
        """How long it will take."""
        return self.heartbeat.seconds_left if self.heartbeat is not None and self.running else None


def monitor(arguments: Sequence[str]) -> None:
    """Show how a run stands, until it ends."""
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
    from velocirl.monitor.console import make_console  # what draws is imported where there is somebody to look

    console = make_console()
    if "once" in given:
        show(console, next(sights))
    elif console.is_terminal:
        show_live(console, sights)
    else:
        show_lines(console, sights)


def look(path: Path) -> Sight:
    """The run in a directory as it stands now; nothing there is touched."""
    description = _read(path)
    status = RunSummary(path.name, path, description).status
    heartbeat = read_heartbeat(path)
    return Sight(
        path, description, status, heartbeat, None if heartbeat is None else max(time.time() - heartbeat.time, 0.0)
    )


def watch(path: Path, interval: float) -> Iterator[Sight]:
    """The run as it stands, again and again until it has ended; the last one says how."""
    while (sight := look(path)).running:
        yield sight
        time.sleep(interval)
    if sight.heartbeat is not None and sight.heartbeat.status == "running" and sight.status != "interrupted":
        time.sleep(ENDING)
        sight = look(path)
    yield sight


def as_json(sight: Sight) -> dict[str, Any]:
    """One line of JSON; what is not known is null."""
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
    """The directory of the run of a name, or of the newest one that is running."""
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
