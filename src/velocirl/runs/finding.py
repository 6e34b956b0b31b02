"""Lookup of runs and groups by directory, name or beginning of a name."""

from __future__ import annotations

import contextlib
from pathlib import Path

from velocirl.engine.disk.confined import ConfinedPath
from velocirl.runs.directory import (
    DESCRIPTION,
    Run,
    RunNotFoundError,
    known_paths,
    list_runs,
    open_run,
    the_one_named,
)
from velocirl.runs.groups import Group, find_group, group_paths, is_group, open_group


def find(name: str | None) -> Run | Group:
    """Find a run or group by name or directory; without a name, the newest one."""
    if name is None:
        newest = next(iter(list_runs()), None)
        if newest is None:
            raise RunNotFoundError("there are no runs yet: velocirl train CartPole-v1")
        within = newest.path.parent
        return open_group(within) if is_group(within) else open_run(newest.path)
    if is_group(Path(name)):
        return open_group(name)
    if not (Path(name) / DESCRIPTION).is_file():
        found = the_one_named(name, [*known_paths(), *group_paths()])
        if found is not None:
            return open_group(found) if is_group(found) else _open(found)
    try:
        return _open(Path(name))
    except RunNotFoundError:
        above, _, below = name.rstrip("/").rpartition("/")
        group = find_group(above) if above else None
        if group is None:
            raise
        return _open(group.path / below)  # the form NAME/seed-3


def find_run(name: str | None) -> Run:
    """Find a run by name or directory; without a name, the newest one. Raises for a group: its seed must be chosen."""
    found = find(name)
    if isinstance(found, Run):
        return found
    first = found.run_path(found.description.seeds[0]).name
    raise RunNotFoundError(
        f"{found.name} is a group of {len(found.description.seeds)} runs: choose one, such as {found.name}/{first}"
    )


def _open(path: Path) -> Run:
    """Open a run by its directory or name; raises for a link within a group."""
    if path.name and is_group(path.parent):
        with contextlib.suppress(FileNotFoundError), (ConfinedPath(path.parent) / path.name).opened_directory():
            pass
    return open_run(path)
