"""Where velocirl keeps what outlives a process; VELOCIRL_HOME moves all of it."""

import os
import stat
import sys
from pathlib import Path


class UnsafeDirectoryError(PermissionError):
    """A directory of compiled code through which somebody else could hand us theirs."""


def cache_directory() -> Path:
    """The directory of compiled code: this user's own and nobody else's, since what lies there is executed."""
    home = os.environ.get("VELOCIRL_HOME")
    if home:
        base = Path(home).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "velocirl"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "velocirl"
    base.mkdir(parents=True, exist_ok=True)
    path = base / "compiled"
    path.mkdir(mode=0o700, exist_ok=True)
    _check_private(path)
    return path


def data_directory() -> Path:
    """The directory of what training leaves behind; whoever writes there creates it."""
    home = os.environ.get("VELOCIRL_HOME")
    if home:
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "velocirl"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "velocirl"


def _check_private(path: Path) -> None:
    """Refuse a directory through which somebody else could hand us code."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        fault = "is a symbolic link"
    elif status.st_uid != os.getuid():
        fault = f"belongs to user {status.st_uid}, not to you"
    elif status.st_mode & 0o077:
        fault = f"is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise UnsafeDirectoryError(
        f"the compile cache {path} {fault}, and what lies in it is executed: remove it, or set VELOCIRL_HOME elsewhere"
    )
