"""Runs: one private directory each, and an index of the runs elsewhere."""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import os
import platform
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numba
import numpy as np

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.directories import data_directory
from velocirl.engine.disk.files import parse_json, plain_handle, read_plain
from velocirl.engine.disk.writing import remove_unfinished, strict_json, write_whole
from velocirl.runs.checkpoints import Checkpoints
from velocirl.runs.metrics import MetricsLog, Row, read_rows
from velocirl.runs.processor import processor
from velocirl.version import __version__

DESCRIPTION = "run.json"
INDEX = "runs.jsonl"
MOST_LISTED = 8  # names in an error message
METRICS, EVENTS, CURVE, CHECKPOINTS = "metrics.jsonl", "events", "learning_curve.png", "checkpoints"
Status = Literal["running", "finished", "stopped", "failed"]


class RunExistsError(FileExistsError):
    """Error for a new run in a directory that is in use."""


class RunNotFoundError(FileNotFoundError):
    """Error for a directory or name without a run; the message suggests similar names."""


class DamagedRunError(ValueError):
    """Error for a run whose description cannot be read; the message names file and fault."""


class RunBusyError(RuntimeError):
    """Error for a run that another process is working on."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Training plan of a run, in addition to its algorithm's configuration; a resumed run keeps it."""

    total_steps: int
    checkpoint_every: int
    evaluate_every: int | None = None
    target_return: float | None = None
    environment_file: str | None = None  # the Python file that defines the environment, if it is not built in
    environment_sha256: str | None = None  # of that file's content


class RunDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Description of a run, its machine and its software: the contents of run.json."""

    format: Literal[1]
    environment: str
    algorithm: str
    seed: int
    config: dict[str, Any]
    device: str
    threads: int | None
    versions: dict[str, str]
    processor: str
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    status: Status
    plan: Plan | None = None


@dataclass(frozen=True)
class RunSummary:
    """Entry of the list of runs; a damaged run has a problem instead of a description."""

    name: str
    path: Path
    description: RunDescription | None
    problem: str = ""

    @property
    def status(self) -> str:
        """The status of the run; a run marked as running that no process holds was interrupted."""
        if self.description is None:
            return "damaged"
        status = self.description.status
        return "interrupted" if status == "running" and not is_held(self.path) else status


class Run:
    """One run directory: run.json, metrics.jsonl, checkpoints/, events/ and learning_curve.png.

    The directory may come from an untrusted archive: all reads and writes go through `files`, which follows no links.
    The other paths are for display only.
    """

    def __init__(self, path: Path, description: RunDescription) -> None:
        self.path = path
        self.files = ConfinedPath(path)
        self.description = description

    @property
    def name(self) -> str:
        """The name by which the run is found."""
        return self.path.name

    @property
    def metrics_path(self) -> Path:
        """The file of metrics."""
        return self.path / METRICS

    @property
    def events_path(self) -> Path:
        """The directory of TensorBoard events, if they are written."""
        return self.path / EVENTS

    @property
    def curve_path(self) -> Path:
        """The image of the learning curve."""
        return self.path / CURVE

    def checkpoints(self, keep: int = 3) -> Checkpoints:
        """Return the run's checkpoints, of which the newest `keep` stay."""
        return Checkpoints(self.files / CHECKPOINTS, keep)

    def metrics(self) -> MetricsLog:
        """Open the metrics for appending."""
        return MetricsLog(self.files / METRICS)

    def rows(self) -> list[Row]:
        """Return the rows of metrics so far; empty for a run that has just begun."""
        return read_rows(self.files / METRICS) if (self.files / METRICS).exists() else []

    def set_status(self, status: Status) -> None:
        """Set the run's status, on disk too."""
        if status != self.description.status:
            self.describe(status=status)

    def describe(self, **changes: Any) -> None:
        """Change fields of the description, on disk too."""
        self.description = msgspec.structs.replace(self.description, **changes)
        self._write()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the run while this context lasts; another process that tries to gets a RunBusyError."""
        with hold_directory(self.path, self.name):
            yield

    def _write(self) -> None:
        text = strict_json(msgspec.to_builtins(self.description), indent=2)
        write_whole(self.files / DESCRIPTION, [f"{text}\n".encode()])


def create_run(
    directory: str | Path | None,
    environment: str,
    algorithm: str,
    config: Mapping[str, Any],
    seed: int,
    *,
    device: str = "cpu",
    threads: int | None = None,
    plan: Plan | None = None,
) -> Run:
    """Create a run in its own directory, the given one or one named after the run; overwrites nothing."""
    created = datetime.now(UTC).replace(microsecond=0)
    plain = parse_json(strict_json(config))  # raises for values that cannot be stored, before the directory is created
    path = claim(Path(directory)) if directory else claim_new(f"{environment}-{algorithm}-{seed}", created)
    description = RunDescription(
        format=1,
        environment=environment,
        algorithm=algorithm,
        seed=seed,
        config=plain,
        device=device,
        threads=threads,
        versions=_versions(),
        processor=processor(),
        created=created,
        status="running",
        plan=plan,
    )
    run = Run(path, description)
    run._write()
    if path.parent != _home():
        _remember(path)
    return run


def open_run(path_or_name: str | Path) -> Run:
    """Open the run in a directory, or the run with this name or beginning of a name."""
    path = Path(path_or_name)
    if not (path / DESCRIPTION).is_file():
        path = _find(str(path_or_name))
    path = path.resolve()
    remove_unfinished(path)
    return Run(path, _read(path))


@contextlib.contextmanager
def hold_directory(path: Path, name: str) -> Iterator[None]:
    """Lock a directory while this context lasts; another process that tries to gets a RunBusyError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunBusyError(f"{name} is running in another process; wait for it, or stop it first") from None
        except OSError:  # a file system without locks: busy runs cannot be detected, so none is refused
            pass
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Return whether a process holds the run in a directory. However that process ends, its lock ends too."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held; or a file system without locks, where the recorded status counts
        return True
    else:
        return False
    finally:
        os.close(handle)


def list_runs() -> list[RunSummary]:
    """List all runs whose directories still exist, wherever they are, newest first."""
    summaries = []
    for path in known_paths():
        try:
            summaries.append(RunSummary(path.name, path, _read(path)))
        except DamagedRunError as error:
            summaries.append(RunSummary(path.name, path, None, str(error)))
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(
        summaries, key=lambda run: (run.description.created if run.description else oldest, run.name), reverse=True
    )


def the_one_named(name: str, known: Sequence[Path]) -> Path | None:
    """Return the directory with this name or beginning of a name; None without a match, an error for several."""
    exact = [path for path in known if path.name == name]
    matching = exact or [path for path in known if name and path.name.startswith(name)]
    if len(matching) < 2:
        return matching[0] if matching else None
    names = [path.name for path in matching]
    shown = [str(path) if names.count(path.name) > 1 else path.name for path in matching[:MOST_LISTED]]
    more = f" and {len(matching) - MOST_LISTED} more" if len(matching) > MOST_LISTED else ""
    raise RunNotFoundError(f"{name!r} matches {len(matching)} runs, give more of the name: {', '.join(shown)}{more}")


def _find(name: str) -> Path:
    known = list(known_paths())
    if (found := the_one_named(name, known)) is not None:
        return found
    if name and Path(name).is_dir():
        raise RunNotFoundError(f"{name} is not a run: it has no {DESCRIPTION}")
    near = difflib.get_close_matches(name, [path.name for path in known], n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"runs are kept in {_home()}"
    raise RunNotFoundError(f"there is no run {name!r}: {hint}")


def _read(path: Path) -> RunDescription:
    file = ConfinedPath(path) / DESCRIPTION
    try:
        return msgspec.convert(parse_json(read_plain(file)), RunDescription)
    except (ValueError, NotPlainFileError) as error:
        raise DamagedRunError(f"{file} does not describe a run: {error}") from error


def _versions() -> dict[str, str]:
    """Return the versions without reading package metadata, which a source tree on the path does not have."""
    own = {"velocirl": __version__, "numpy": np.__version__, "numba": numba.__version__}
    return {"python": platform.python_version(), **own}


def _home() -> Path:
    return (data_directory() / "runs").resolve()


def claim(path: Path) -> Path:
    """Claim a directory for a run: a new or an empty one."""
    path = path.expanduser().resolve()
    if (path / DESCRIPTION).exists():
        raise RunExistsError(f"{path} is a run already: go on with it by `velocirl resume {path}`, or choose another")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunExistsError(f"{path} is not an empty directory: a run needs one of its own")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def claim_new(title: str, created: datetime) -> Path:
    """Create a directory in the default location; a number is appended if several runs start in one second."""
    home = _home()
    try:
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        if not os.access(home, os.W_OK):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    except OSError as error:
        raise OSError(
            f"no run can be kept in {home} ({error.strerror}): say where with --run-dir, or set VELOCIRL_HOME to a"
            " directory that can be written"
        ) from error
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", title).lstrip(".-")
    name = f"{words}-{created.astimezone():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        path = home / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return path


def _remember(path: Path) -> None:
    """Add a run outside the default location to the index, so that it is listed."""
    index = data_directory() / INDEX
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        handle = plain_handle(index, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
        try:
            os.write(handle, f"{strict_json({'path': str(path)})}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        warnings.warn(f"{path} will not be listed among the runs: {index}: {error.strerror}", stacklevel=3)


def known_paths() -> Iterator[Path]:
    """Return the directories of existing runs: those in the default location, then those of the index."""
    home, index = _home(), data_directory() / INDEX
    paths = dict.fromkeys(sorted(home.iterdir())) if home.is_dir() else {}
    for line in read_plain(index).splitlines() if index.exists() else ():
        try:
            paths[Path(msgspec.convert(parse_json(line), dict[str, str])["path"])] = None
        except (ValueError, KeyError):  # torn by a kill; a run whose line is lost can still be opened by its path
            continue
    return (path for path in paths if (path / DESCRIPTION).is_file())
