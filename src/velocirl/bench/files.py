"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name, then give it its own: a reader finds the old text or the new one."""
    path = path.resolve()  # of a link, the file it points to
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Refuse a path that could not be written, before there is anything to lose."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the name of a file")
    directory = path.resolve().parent
    if not directory.is_dir():
        raise FileNotFoundError(f"{path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{path}: {directory} is not writable")
