"""Writing of a history: created and extended atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from velocirl.bench.history.rows import Row, digest
from velocirl.bench.history.schema import (
    APPLICATION,
    MOST_BYTES,
    MOST_RUNS,
    MOVE_AWAY,
    TABLES,
    VERSION,
    connect,
    in_words,
)


def create_file(path: Path) -> None:
    """Create a history, private to the user; if another process created it first, that file is kept."""
    for directory in reversed([parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]):
        directory.mkdir(mode=0o700, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".unfinished", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, f"no history can be begun here ({error.strerror})", str(path)) from error
    unfinished = Path(name)
    try:
        with in_words(path), contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            for statement in (
                "PRAGMA journal_mode = MEMORY",  # no other process can see this file yet
                "PRAGMA encoding = 'UTF-8'",
                "BEGIN",
                f"PRAGMA application_id = {APPLICATION}",
                f"PRAGMA user_version = {VERSION}",
                *TABLES.values(),
                "COMMIT",
            ):
                connection.execute(statement)
        os.fsync(handle)
        try:
            path.hardlink_to(unfinished)  # unlike a rename, this never replaces another file
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS) or os.path.lexists(path):
                raise
            unfinished.rename(path)
    finally:
        os.close(handle)
        unfinished.unlink(missing_ok=True)


def append(path: Path, number: int, run: Row, figures: list[Row]) -> None:
    """Add a run to a file that was just read, inside the same `turn`: completely or not at all."""
    room = MOST_BYTES - path.stat().st_size - 2 * sum(len(str(row)) for row in (run, *figures))
    if room < 0 or number > MOST_RUNS:
        raise OSError(f"the history {path} is full: {MOVE_AWAY}")
    written = digest(number, run)
    rows = [(number, place, *row, digest(written, place, row)) for place, row in enumerate(figures)]
    with in_words(path), contextlib.closing(connect(path, "rw")) as connection:
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("BEGIN IMMEDIATE")
        try:
            _insert(connection, "runs", [(number, *run, written)])
            _insert(connection, "figures", rows)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    places = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - a name of ours
