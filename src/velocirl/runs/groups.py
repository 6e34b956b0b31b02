"""Groups: a directory for agents of one configuration and many seeds, with one run per seed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.directories import data_directory
from velocirl.engine.disk.files import parse_json, read_plain
from velocirl.engine.disk.writing import strict_json, write_whole
from velocirl.runs.curves.curve import draw_seeds
from velocirl.runs.directory import (
    DESCRIPTION,
    DamagedRunError,
    Plan,
    Run,
    RunExistsError,
    RunSummary,
    claim,
    claim_new,
    hold_directory,
    list_runs,
    open_run,
    the_one_named,
)
from velocirl.runs.seeds import SeedResult, Summary, aggregate, summarise

GROUP = "group.json"
SUMMARY = "summary.json"
CURVE = "curve.png"
WAITING = "waiting"
STATUSES = ("running", "failed", "interrupted", "stopped", WAITING, "finished")


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Description shared by the runs of a group: the contents of group.json."""

    format: Literal[1]
    environment: str
    algorithm: str
    seeds: list[int]
    config: dict[str, Any]  # without the seed
    plan: Plan
    created: Annotated[datetime, msgspec.Meta(tz=True)]


class Group:
    """One group directory: group.json, a run in seed-N for each seed, summary.json and curve.png."""

    def __init__(self, path: Path, description: GroupDescription) -> None:
        self.path = path
        self.files = ConfinedPath(path)  # confines all reads and writes, as in `Run`
        self.description = description

    @property
    def name(self) -> str:
        """The name by which the group is found."""
        return self.path.name

    @property
    def curve_path(self) -> Path:
        """The image of the learning curves."""
        return self.path / CURVE

    def run_path(self, seed: int) -> Path:
        """Return the directory of a seed's run; raises if it is a link."""
        place = self.files / f"seed-{seed}"
        with contextlib.suppress(FileNotFoundError), place.opened_directory():
            pass
        return place.path

    def run(self, seed: int) -> Run | None:
        """Open the run of a seed; None if it has not begun."""
        path = self.run_path(seed)
        return open_run(path) if (path / DESCRIPTION).is_file() else None

    def results(self, errors: Mapping[int, str] | None = None) -> list[SeedResult]:
        """Return status and metrics of each seed; `errors` holds known failure messages by seed."""
        errors = errors or {}
        found = []
        for seed in self.description.seeds:
            run = self.run(seed)
            if run is None:
                status = "failed" if seed in errors else WAITING
                found.append(SeedResult(seed, status, (), errors.get(seed, "")))
            else:
                status = RunSummary(run.name, run.path, run.description).status
                found.append(SeedResult(seed, status, run.rows(), errors.get(seed, "")))
        return found

    def set_plan(self, plan: Plan) -> None:
        """Set the training plan of the seeds, on disk too."""
        self.description = msgspec.structs.replace(self.description, plan=plan)
        self.write()

    def summary(self) -> Summary | None:
        """Return the last summary written, or None."""
        try:
            return msgspec.convert(parse_json(read_plain(self.files / SUMMARY)), Summary)
        except (OSError, ValueError):  # it can be recomputed from the runs
            return None

    def publish(self, seconds: float, errors: Mapping[int, str] | None = None) -> Summary:
        """Write the summary and draw the curve from the runs; `seconds` is the total time."""
        results = self.results(errors)
        description = self.description
        summary = summarise(description.environment, description.algorithm, results, seconds)
        write_whole(self.files / SUMMARY, [f"{strict_json(msgspec.to_builtins(summary), indent=2)}\n".encode()])
        title = f"{description.environment}  {description.algorithm}"
        try:
            draw_seeds([one.rows for one in results], aggregate(results), self.files / CURVE, title)
        except OSError as error:  # it can be drawn from the metrics later
            warnings.warn(f"the picture of the learning curves could not be written: {error}", stacklevel=2)
        return summary

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the group while this context lasts; another process that tries to gets a RunBusyError."""
        with hold_directory(self.path, self.name):
            yield

    def write(self) -> None:
        """Write the description."""
        text = strict_json(msgspec.to_builtins(self.description), indent=2)
        write_whole(self.files / GROUP, [f"{text}\n".encode()])


def create_group(
    directory: str | Path | None,
    environment: str,
    algorithm: str,
    seeds: Sequence[int],
    config: Mapping[str, Any],
    plan: Plan,
) -> Group:
    """Create a group in its own directory, the given one or one named after the group; overwrites nothing."""
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"a group needs at least one seed, and none of them twice; got {list(seeds)}")
    created = datetime.now(UTC).replace(microsecond=0)
    plain = parse_json(strict_json({name: value for name, value in config.items() if name != "seed"}))
    if directory is None:
        path = claim_new(f"{environment}-{algorithm}-seeds-{seeds[0]}-{seeds[-1]}", created)
    else:
        path = Path(directory).expanduser()
        if is_group(path):
            raise RunExistsError(f"{path} is a group of runs already: go on with it by `velocirl resume {path}`")
        path = claim(path)
    description = GroupDescription(
        format=1,
        environment=environment,
        algorithm=algorithm,
        seeds=list(seeds),
        config=plain,
        plan=plan,
        created=created,
    )
    group = Group(path, description)
    group.write()
    return group


def status_of(results: Sequence[SeedResult]) -> str:
    """Return the status of a group: "running" if any seed is, else the worst status of its seeds."""
    found = [one.status for one in results]
    return next((status for status in STATUSES if status in found), WAITING)


def is_group(path: Path) -> bool:
    """Return whether a directory holds a group."""
    return (path / GROUP).is_file()


def open_group(path: str | Path) -> Group:
    """Open the group in a directory."""
    path = Path(path).resolve()
    try:
        return Group(path, msgspec.convert(parse_json(read_plain(ConfinedPath(path) / GROUP)), GroupDescription))
    except (ValueError, NotPlainFileError) as error:
        raise DamagedRunError(f"{path / GROUP} does not describe a group of runs: {error}") from error


def find_group(path_or_name: str) -> Group | None:
    """Find the group in a directory, or with this name or beginning of a name; None if there is none."""
    if is_group(Path(path_or_name)):
        return open_group(path_or_name)
    path = the_one_named(path_or_name, group_paths())
    return None if path is None else open_group(path)


def group_paths() -> list[Path]:
    """Return the directories of existing groups: those in the default location, then those of known runs elsewhere."""
    home = (data_directory() / "runs").resolve()
    places = [*(sorted(home.iterdir()) if home.is_dir() else ()), *(run.path.parent for run in list_runs())]
    return [path for path in dict.fromkeys(places) if is_group(path)]
