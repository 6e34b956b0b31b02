"""Persistent directories of velocirl, with ownership checks; VELOCIRL_HOME moves all of them.

They hold compiled code and the list of trusted files: whoever can change these runs code as the user. Names alone are
therefore never trusted.

Every directory on the way must belong to the user or to root, and must not be world-writable. Nobody else can then
replace the home directory. The home and the cache in it are opened; the open directories must belong to the user and be
closed to others. Files to execute are opened within them, and must also belong to the user (`files.open_own`). From
then on nobody else can change the meaning of a path.

Members of a group that may write a directory above the home gain nothing. A directory that they put in its place would
not belong to the user.
"""

import contextlib
import errno
import functools
import os
import stat
import sys
from pathlib import Path

from velocirl.engine.disk.files import UnsafePathError

MOST_LINKS = 40
NOBODY = 65534  # owner shown for files of users unknown in a container
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def cache_directory() -> Path:
    """Return the directory of compiled code, which must belong to this user alone, since its files are executed."""
    os.close(open_cache_directory())
    return cache_path()


def open_cache_directory() -> int:
    """Open the directory of compiled code, created if missing; returns its descriptor."""
    path = cache_path()
    home = open_home(path.parent)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=home)
        try:
            handle = os.open(path.name, DIRECTORY, dir_fd=home)
        except OSError as error:
            if path.is_symlink():
                raise _unsafe(path, "is a symbolic link") from None
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(home)
    _require_own(handle, path, 0o077)
    return handle


def cache_path() -> Path:
    """Return the path of the directory of compiled code, without any checks."""
    home = os.environ.get("VELOCIRL_HOME")
    if home:
        base = Path(home).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "velocirl"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "velocirl"
    return base / "compiled"


def data_directory() -> Path:
    """Return the directory of training results, checked for ownership if it exists; writers create it."""
    home = os.environ.get("VELOCIRL_HOME")
    if home:
        path = Path(home).expanduser()
    elif sys.platform == "darwin":
        path = Path.home() / "Library" / "Application Support" / "velocirl"
    else:
        path = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "velocirl"
    try:
        os.close(open_home(path, create=False))
    except UnsafePathError:
        raise
    except OSError:  # missing or unreachable: the code that needs it reports this
        pass
    return path


def open_home(path: Path, *, create: bool = True) -> int:
    """Open a directory of the user's own, removing others' write permission; returns its descriptor."""
    place = _follow(path, create)
    handle = os.open(place, DIRECTORY)
    sticky = os.fstat(handle).st_mode & stat.S_ISVTX  # in a sticky directory, others cannot touch the user's files
    _require_own(handle, place, 0 if sticky else 0o022)
    return handle


def _follow(path: Path, create: bool) -> Path:
    """Resolve a path through links of the user and root; raises if anyone else controls a directory on the way."""
    place, left, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while left:
        name = left.pop()
        step = place.parent if name == ".." else place / name
        try:
            status = step.lstat()
        except FileNotFoundError:
            if not create:
                raise
            step.mkdir(mode=0o700, exist_ok=True)
            status = step.lstat()
        if status.st_uid not in _keepers(os.geteuid()):
            raise _unsafe(step, f"belongs to user {status.st_uid}, not to you")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = step.readlink()
            place = Path("/") if target.is_absolute() else place
            left.extend(reversed(target.parts[target.is_absolute() :]))
            continue
        if left and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise _unsafe(step, "can be written by anyone (chmod o-w would close it)")
        place = step
    return place


@functools.cache
def _keepers(user: int) -> set[int]:
    """Return the allowed owners of a directory on the way: the user and root, which a container may show as nobody."""
    try:
        known = [line.split()[0] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:  # a system without such containers
        known = ["0"]
    return {user, 0} if "0" in known else {user, 0, NOBODY}


def _require_own(handle: int, path: Path, forbidden: int) -> None:
    """Raise for an open directory of another user, and remove forbidden permissions; closes the directory on errors."""
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise _unsafe(path, f"belongs to user {status.st_uid}, not to you")
        if status.st_mode & forbidden:
            os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~forbidden)
            if os.fstat(handle).st_mode & forbidden:
                raise _unsafe(path, "cannot be closed to others, as its file system knows no permissions")
    except BaseException:
        os.close(handle)
        raise


def _unsafe(path: Path, fault: str) -> UnsafePathError:
    return UnsafePathError(
        f"{path} {fault}, and code that velocirl runs is kept there: set VELOCIRL_HOME to a directory of your own"
    )
