"""Where velocirl keeps what outlives a process; VELOCIRL_HOME moves all of it.

Compiled code and the list of trusted files lie there: whoever can change them runs code as us. So nothing is believed
by its name. Every directory on the way belongs to us or to root, and is not one that anyone may write, so that nobody
else can put another home in the place of ours; the home and the cache in it are opened, and it is the open ones that
have to be ours and closed to others; what is executed is read from files that are opened within them, and have to be
ours as well (`files.open_own`). From then on nobody else can change what a path means. Of members of a group that may
write a directory above the home no more is believed than that: what they put in its place would not be ours.
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
NOBODY = 65534  # to whom files of users belong that a container does not know
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def cache_directory() -> Path:
    """The directory of compiled code: this user's own and nobody else's, since what lies there is executed."""
    os.close(open_cache_directory())
    return cache_path()


def open_cache_directory() -> int:
    """The descriptor of that directory, which is made where it is missing."""
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
    """Where that directory lies, whatever it is."""
    home = os.environ.get("VELOCIRL_HOME")
    if home:
        base = Path(home).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "velocirl"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "velocirl"
    return base / "compiled"


def data_directory() -> Path:
    """The directory of what training leaves behind, if it is ours; whoever writes there creates it."""
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
    except OSError:  # not there yet, or not to be reached: who needs it will say so
        pass
    return path


def open_home(path: Path, *, create: bool = True) -> int:
    """The descriptor of a directory of our own; one that others could write is closed to them."""
    place = _follow(path, create)
    handle = os.open(place, DIRECTORY)
    sticky = os.fstat(handle).st_mode & stat.S_ISVTX  # there, others cannot touch what is ours
    _require_own(handle, place, 0 if sticky else 0o022)
    return handle


def _follow(path: Path, create: bool) -> Path:
    """The directory behind a path, by links of ours and root's, if only we and root decide what lies on the way."""
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
    """Who may own a directory on the way: we, and root, whom a container that does not know it shows as nobody."""
    try:
        known = [line.split()[0] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:  # a system without such containers
        known = ["0"]
    return {user, 0} if "0" in known else {user, 0, NOBODY}


def _require_own(handle: int, path: Path, forbidden: int) -> None:
    """Refuse an open directory that is not ours, and take from others what they may not do; closes what it refuses."""
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
