"""Tables of a history, and connections to its file that trust nothing in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from velocirl.bench.history.rows import FIGURE_COLUMNS, RUN_COLUMNS

APPLICATION, VERSION = 0x76726C68, 1  # "vrlh", and the version of the tables
MOST_BYTES = 256 * 2**20
MOST_RUNS = 100_000
BUSY_SECONDS = 10.0  # time limit for waiting until another process has finished writing
TYPES: dict[object, str] = {bool: "INTEGER", int: "INTEGER", float: "REAL"}
MOVE_AWAY = "move it away, and a new one is begun"


class DamagedHistoryError(ValueError):
    """Raised for a file that is not a valid history; the message names the file, the fault and the remedy."""


def _table(name: str, keys: str, columns: dict[str, int | type]) -> str:
    typed = "".join(f', "{column}" {TYPES.get(kind, "TEXT")} NOT NULL' for column, kind in columns.items())
    return f"CREATE TABLE {name} ({keys}{typed}, digest TEXT NOT NULL)"


TABLES = {
    "runs": _table("runs", "id INTEGER PRIMARY KEY", RUN_COLUMNS),
    "figures": _table("figures", "run INTEGER NOT NULL, place INTEGER NOT NULL", FIGURE_COLUMNS),
}


@contextlib.contextmanager
def turn(directory: Path) -> Iterator[None]:
    """Lock a directory's histories against other processes: a journal found there is then no longer in use."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"{directory}: another process is writing to a history; try again") from None
                time.sleep(0.01)
            except OSError:  # a file system without such locks; SQLite has its own
                break
            else:
                break
        yield
    finally:
        os.close(handle)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect to an existing file with settings that trust nothing stored in it."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * 2**20)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Convert errors of SQLite or the system to one-line messages that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TimeoutError(f"the history {path} is being written by another process; try again") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
            raise PermissionError(f"the history {path}, or its directory, cannot be written: {error}") from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            reason = f"the history {path} could not be written ({error}): is the disk full? It is as it was before"
            raise OSError(reason) from error
        raise DamagedHistoryError(f"{path} is no history of benchmarks: {error}; {MOVE_AWAY}") from error
