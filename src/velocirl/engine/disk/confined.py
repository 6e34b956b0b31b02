"""Paths below an untrusted directory, such as a run that came as an archive.

No link below that directory is followed. Every directory on the way is opened by the descriptor of the one above it,
without following links. `files.plain_handle` opens nothing but plain files. All reading and writing of runs uses such
paths; methods of `pathlib.Path` such as `open` are missing on purpose.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ABOVE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
BELOW = ABOVE | os.O_NOFOLLOW


class NotPlainFileError(OSError):
    """Link, pipe, device or socket in place of a plain file or a directory."""

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


@dataclass(frozen=True)
class ConfinedPath:
    """Path below `root`: links that lead to `root` are followed, links below it raise NotPlainFileError."""

    root: Path
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str | Path | ConfinedPath) -> ConfinedPath:
        """Confine a path to itself; a confined path is returned unchanged."""
        return path if isinstance(path, ConfinedPath) else cls(Path(path))

    @property
    def path(self) -> Path:
        """Path for messages and for display; not for opening."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.parts[-1] if self.parts else self.root.name

    @property
    def parent(self) -> ConfinedPath:
        """Directory above; `root` has no confined one."""
        if not self.parts:
            raise ValueError(f"{self} is the directory to which paths are confined")
        return ConfinedPath(self.root, self.parts[:-1])

    def __truediv__(self, name: str) -> ConfinedPath:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is not the name of a file")
        return ConfinedPath(self.root, (*self.parts, name))

    def __str__(self) -> str:
        return str(self.path)

    @contextlib.contextmanager
    def opened_directory(self, *, create: bool = False) -> Iterator[int]:
        """Open this directory; yields its descriptor. With `create`, missing directories are created as private."""
        if create:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.root, ABOVE)
        try:
            for depth, name in enumerate(self.parts):
                inner = _open_below(name, handle, Path(self.root, *self.parts[: depth + 1]), create)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def make_directory(self) -> None:
        """Create this directory and missing ones above it."""
        with self.opened_directory(create=True):
            pass

    def names(self) -> list[str]:
        """Return the names in this directory, without directories; empty if the directory is missing."""
        return [name for name, is_directory in self.entries().items() if not is_directory]

    def entries(self) -> dict[str, bool]:
        """Return the names in this directory, and whether each is a directory; empty if the directory is missing."""
        try:
            with self.opened_directory() as handle, os.scandir(handle) as found:
                return dict(sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found))
        except FileNotFoundError:
            return {}

    def status(self) -> os.stat_result | None:
        """Return the status of this path without following links; None if nothing exists there."""
        try:
            with self.parent.opened_directory() as handle:
                return os.stat(self.name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def exists(self) -> bool:
        """Return whether this path exists, of any kind."""
        return self.status() is not None

    def is_file(self) -> bool:
        """Return whether a plain file is here."""
        return (status := self.status()) is not None and stat.S_ISREG(status.st_mode)

    def remove(self) -> None:
        """Remove the file or link at this path, if any."""
        with contextlib.suppress(FileNotFoundError), self.parent.opened_directory() as handle:
            os.unlink(self.name, dir_fd=handle)

    def remove_directory(self) -> None:
        """Remove the directory at this path, which must be empty."""
        with contextlib.suppress(FileNotFoundError), self.parent.opened_directory() as handle:
            os.rmdir(self.name, dir_fd=handle)

    def rename(self, name: str) -> None:
        """Rename this path within its directory; an existing target is replaced."""
        with self.parent.opened_directory() as handle:
            os.replace(self.name, (self.parent / name).name, src_dir_fd=handle, dst_dir_fd=handle)


def _open_below(name: str, above: int, path: Path, create: bool) -> int:
    """Open a directory within an open one; raises for a link or a non-directory."""
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
        return os.open(name, BELOW, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            raise refused(path, name, above, wanted="a directory") from None
        raise OSError(error.errno, error.strerror, str(path)) from None


def refused(path: object, name: str, above: int, wanted: str = "a plain file") -> NotPlainFileError:
    """Return the error for a name in an open directory that is not opened."""
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            return NotPlainFileError(errno.ELOOP, f"is not {wanted} but a symbolic link", str(path))
    return NotPlainFileError(errno.EINVAL, f"is not {wanted}", str(path))
