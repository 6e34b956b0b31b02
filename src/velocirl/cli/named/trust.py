"""Trust in code that only a file names: code that the user has run before, identified by content as well as path."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

import msgspec

from velocirl.cli.parsing import Parser
from velocirl.engine.disk.directories import data_directory, open_home
from velocirl.engine.disk.files import UnsafePathError, open_own, parse_json, plain_handle
from velocirl.monitor.words import printable

NAMED = "environment_files.jsonl"  # in the data directory: the code that the user has named
BUFFER_FILE = "buffer file"  # in place of a SHA-256, for a file that is not code


class Trusted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the list of trusted code."""

    code: str  # the path of a file, or gym:MODULE:ID
    sha256: str  # of the file's content; empty for a module


def add_trust(parser: Parser | argparse._ArgumentGroup) -> None:
    """Add the option to trust code that would be refused."""
    parser.add_argument(
        "--trust", action="store_true", help="Run the environment's file though it is new, or not as you ran it last"
    )


def require_trust(code: Trusted, named_by: str | None, *, trust: bool, quiet: bool) -> None:
    """Remember code that the user named; accept code that a file names only if it is remembered unchanged.

    Otherwise the user is asked if there is a terminal; without one, --trust is required. The import is reported.
    """
    known = _remembered()
    if named_by is not None:
        if code not in known and not trust:
            changed = any(one.code == code.code for one in known)
            fault = "has changed since you let it run" if changed else "you have not named before"
            wish = f"{named_by} wants {code.code} imported, which is code that {fault}"
            if not _agreed(wish):
                raise ValueError(f"{wish}: look at it, and if you trust it as it is now, add --trust")
        if not quiet:
            print(printable(f"importing {code.code}, which {named_by} names"), file=sys.stderr)
    if code not in known:
        _remember(code)


def require_buffer_file(path: str, named_by: str | None, *, trust: bool) -> None:
    """Check the file of a replay buffer likewise, as it is created or overwritten."""
    file, known = Trusted(os.path.realpath(path), BUFFER_FILE), _remembered()
    if named_by is not None and file not in known and not trust:
        wish = f"{named_by} wants its memory in {file.code}, a file elsewhere that you have not named before"
        if not _agreed(wish):
            raise ValueError(f"{wish}: if it may be made or written over, add --trust")
    if file not in known:
        _remember(file)


def _agreed(wish: str) -> bool:
    """Ask the user, if there is a terminal; returns whether they agree."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{printable(wish)}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _remembered() -> set[Trusted]:
    path = data_directory() / NAMED
    try:
        home = open_home(path.parent, create=False)
        try:
            with open_own(path, home) as file:
                lines = file.read().splitlines()
        finally:
            os.close(home)
    except UnsafePathError:
        raise
    except OSError:  # no such file
        return set()
    known = set()
    for line in lines:
        with contextlib.suppress(ValueError):  # torn by a kill, or of a version that trusted paths
            known.add(msgspec.convert(parse_json(line), Trusted))
    return known


def _remember(code: Trusted) -> None:
    path = data_directory() / NAMED
    with contextlib.suppress(OSError):  # then it has to be named again to resume a run of it
        home = open_home(path.parent)
        try:
            handle = plain_handle(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, home)
            try:
                os.write(handle, msgspec.json.encode(code) + b"\n")
            finally:
                os.close(handle)
        finally:
            os.close(home)
