"""Directories of new runs: handling of `exist` where a run exists already."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from velocirl.buffers.segments import NAME as SEGMENT
from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.disk.writing import TOKEN, UNFINISHED
from velocirl.engine.naming import nearest
from velocirl.runs import checkpoints, config_file, memory_files
from velocirl.runs.directory import (
    CHECKPOINTS,
    CURVE,
    DESCRIPTION,
    EVENTS,
    METRICS,
    RunExistsError,
    hold_directory,
    open_run,
)
from velocirl.runs.groups import CURVE as GROUP_CURVE
from velocirl.runs.groups import GROUP, SUMMARY, is_group, open_group

Exist = Literal["next", "overwrite", "resume", "error"]
NEXT: Exist = "next"
PYTHON, COMMAND = 'exist="{}"', "--exist {}"  # spelling of the setting, in Python and on the command line
# All that velocirl writes into a directory, by name patterns: files, and directories with their contents.
Known = Mapping[str, Any]
CHECKPOINT_FILES: Known = {
    rf"{checkpoints.NAME.pattern}({re.escape(checkpoints.DAMAGED)})?": None,
    re.escape(checkpoints.BEST): None,
    memory_files.DIRECTORY: {SEGMENT.pattern: None},
}
RUN_FILES: Known = {
    **{re.escape(name): None for name in (DESCRIPTION, METRICS, CURVE, config_file.CONFIG, "heartbeat.json")},
    EVENTS: {r"events\.out\.tfevents\..+": None},
    CHECKPOINTS: CHECKPOINT_FILES,
}
GROUP_FILES: Known = {
    **{re.escape(name): None for name in (GROUP, SUMMARY, GROUP_CURVE, config_file.CONFIG)},
    r"seed-\d+": RUN_FILES,
}
HALF_WRITTEN = re.compile(rf"\..*\.[0-9a-z_]{{{TOKEN}}}{re.escape(UNFINISHED)}", re.DOTALL)


def require_exist(exist: str, directory: object, named: str = "run_dir", spelled: str = PYTHON) -> None:
    """Validate `exist`: raises for an unknown value, and for one that needs a directory without having one."""
    if exist not in get_args(Exist):
        raise ValueError(f"{spelled.format(exist)} is unknown{nearest(str(exist), get_args(Exist))}")
    if directory is None and exist != NEXT:
        raise ValueError(f"{spelled.format(exist)} says what to do where there is a run already: add {named}")


def place_run(directory: str | Path, exist: str, told: Callable[[Path, Path], None]) -> Path:
    """Return the directory of a new run or group: the given one, cleared if it may be overwritten, or the next one.

    A directory without a run or group is returned as given; it must be empty or new. `told` is called with the
    requested directory and the next one, if the requested one is taken.
    """
    path = Path(directory).expanduser()
    if exist == "error" or not is_taken(path):
        return path
    if exist == "overwrite":
        clear_run(path)
        return path
    found = next_free(path)
    told(path, found)
    return found


def is_taken(path: Path) -> bool:
    """Return whether a directory holds a run or a group."""
    return (path / DESCRIPTION).exists() or (path / GROUP).exists()


def next_free(path: Path) -> Path:
    """Create the first of the directories NAME-2, NAME-3 and so on that does not exist."""
    path = path if path.name not in ("", "..") else path.resolve()
    number = 2
    while True:
        found = path.with_name(f"{path.name}-{number}")
        try:
            found.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return found


def is_numbered(path: Path, of: Path) -> bool:
    """Return whether `path` could be a directory that `next_free` created for `of`."""
    return path.parent == of.parent and re.fullmatch(rf"{re.escape(of.name)}-\d+", path.name) is not None


def clear_run(path: Path) -> None:
    """Empty the directory of a run or group that no process is working on.

    Nothing is removed unless all of it is velocirl's: an unknown file, a link or an unreadable description raises
    first.
    """
    group = open_group(path) if is_group(path) else None
    runs = [path] if group is None else [one.path for seed in group.description.seeds if (one := group.run(seed))]
    with contextlib.ExitStack() as held:
        for one in dict.fromkeys((path, *runs)):
            held.enter_context(hold_directory(one, str(one)))
        for one in runs:
            open_run(one)  # raises if it is damaged: then it may be something else
        _remove(list(_own(ConfinedPath(path.resolve()), RUN_FILES if group is None else GROUP_FILES)))


def _remove(found: list[tuple[ConfinedPath, bool]]) -> None:
    """Remove files and directories; the description goes last, so that a kill leaves a valid run."""
    for one, is_directory in sorted(found, key=lambda entry: entry[0].parts in ((DESCRIPTION,), (GROUP,))):
        if is_directory:
            one.remove_directory()
        else:
            one.remove()


def _own(place: ConfinedPath, known: Known) -> Iterator[tuple[ConfinedPath, bool]]:
    """Yield (path, is_directory) of the contents of a directory, inner ones first; raises for foreign files."""
    for name, is_directory in place.entries().items():
        inner = place / name
        pattern = next((pattern for pattern in known if re.fullmatch(pattern, name)), None)
        within = None if pattern is None else known[pattern]
        own = pattern is not None or (HALF_WRITTEN.fullmatch(name) is not None and not is_directory)
        if own and is_directory and within is not None:
            yield from _own(inner, within)
            yield inner, True
        elif own and within is None and inner.is_file():
            yield inner, False
        else:
            raise RunExistsError(
                f"{inner} was not written by velocirl, so {place} is not overwritten: move it, or choose another"
                " directory"
            )


def tell(line: str) -> None:
    """Print a line to stderr, as programs may parse stdout."""
    print(line, file=sys.stderr, flush=True)


def tell_next(path: Path, found: Path, spelled: str = PYTHON) -> None:
    """Print which directory a run gets instead of one that is taken."""
    others = f"{spelled.format('resume')} continues {path.name}, {spelled.format('overwrite')} replaces it"
    tell(f"{path} is a run already: this one is {found} ({others})")
