"""Saving of trajectories, in a format chosen by the file ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from velocirl.engine.disk.writing import write_shared
from velocirl.trajectories.page import as_page
from velocirl.trajectories.picture import as_png
from velocirl.trajectories.tables import as_csv, as_npz
from velocirl.trajectories.trajectory import Trajectory

WRITERS: dict[str, Callable[[Trajectory], bytes]] = {".csv": as_csv, ".npz": as_npz, ".png": as_png, ".html": as_page}


def save_trajectory(trajectory: Trajectory, path: str | Path) -> Path:
    """Write the trajectory atomically; a file that existed before stays until then."""
    path = path_with(path, list(WRITERS), make=True)
    write_shared(path, [WRITERS[path.suffix.lower()](trajectory)])
    return path


def trajectory_path(path: str | Path) -> Path:
    """Validate the path of a trajectory; raise for other endings or a missing directory."""
    return path_with(path, list(WRITERS))


def path_with(path: str | Path, endings: Sequence[str], *, make: bool = False) -> Path:
    """Return a path with one of these endings, in an existing directory; with `make` the directory is created."""
    path = Path(path)
    if path.suffix.lower() not in endings:
        raise ValueError(f"{path} must end in {', '.join(endings[:-1])} or {endings[-1]}")
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.is_dir():
        raise ValueError(f"there is no directory {path.parent}")
    return path
