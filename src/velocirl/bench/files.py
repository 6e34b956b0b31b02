"""Atomic file writing: whole files or nothing."""

from __future__ import annotations

import os
from pathlib import Path

from velocirl.engine.disk.files import read_plain
from velocirl.engine.disk.writing import write_shared


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: under a temporary name, then renamed, so a reader finds the old text or the new one."""
    write_shared(path, [text.encode()])


def with_section(text: str, begin: str, end: str, section: str) -> str:
    """Return a text with the part between two markers replaced by `section`; everything outside is unchanged."""
    before, found, rest = text.partition(begin)
    _, ends, after = rest.partition(end)
    if not found or not ends:
        raise ValueError(f"there is no {begin} with a {end} after it")
    return f"{before}{begin}\n{section.strip()}\n{end}{after}"


def read_marked(path: Path, begin: str, end: str, title: str) -> str:
    """Read a file, or start a new one, that holds two markers; raise if their position is ambiguous."""
    text = read_plain(path).decode() if path.exists() else ""
    if begin not in text and end not in text:
        text = f"{text.rstrip() or f'# {title}'}\n\n{begin}\n{end}\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path}: expected one {begin} and after it one {end}, or neither of them")
    return text


def require_writable(path: Path) -> None:
    """Raise if a path could not be written, before any result can be lost."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the name of a file")
    directory = path.resolve().parent
    if not directory.is_dir():
        raise FileNotFoundError(f"{path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{path}: {directory} is not writable")
