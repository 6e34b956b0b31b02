"""Baselines: named runs saved for later comparison."""

from __future__ import annotations

import re
from pathlib import Path

from velocirl.bench.files import require_writable, write_whole
from velocirl.bench.reading import read_report
from velocirl.bench.results import Report
from velocirl.engine.disk.directories import data_directory
from velocirl.engine.naming import nearest

ENDING = ".json"


def baseline_path(name: str) -> Path:
    """Return the path of a baseline: `name` itself if it ends in .json (such as a file in a repository), else ours."""
    if name.endswith(ENDING):
        return Path(name).expanduser()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(
            f"a baseline is named by letters, digits, '.', '_' and '-', or is a path to a .json file: {name!r}"
        )
    return _home() / f"{name}{ENDING}"


def check_baseline(name: str) -> Path:
    """Return the path where a baseline will be saved; raise now if it could not be written."""
    path = baseline_path(name)
    if path.parent == _home():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_writable(path)
    return path


def save_baseline(name: str, report: Report) -> Path:
    """Save a run under a name; only a complete run may replace an earlier baseline."""
    path = check_baseline(name)
    if not report.complete:
        raise ValueError(f"an interrupted run is no baseline; {name} stays as it was")
    write_whole(path, report.as_json())
    return path


def load_baseline(name: str) -> Report:
    """Load the run that was saved under a name."""
    path = baseline_path(name)
    if not path.is_file():
        known = [one.stem for one in sorted(_home().glob(f"*{ENDING}"))] if path.parent == _home() else []
        hint = nearest(name, known) if known else ""
        raise ValueError(f"there is no baseline {name!r}{hint} (velocirl bench --save {name} makes one)")
    return read_report(path)


def _home() -> Path:
    return data_directory() / "bench" / "baselines"
