"""Reading of a history file: validated from its first byte to its last row before use.

Another user may have written the file found under this name. It is read through a connection that cannot write. The
journal of a killed writer is rolled back in a copy first, so that a rejected file is unchanged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import struct
import tempfile
from pathlib import Path

from velocirl.bench.history.rows import PastRun, Point, digest, read_point, read_run
from velocirl.bench.history.schema import (
    APPLICATION,
    MOST_BYTES,
    MOST_RUNS,
    MOVE_AWAY,
    TABLES,
    VERSION,
    DamagedHistoryError,
    connect,
    in_words,
)

MAGIC, HEADER_BYTES = b"SQLite format 3\0", 100
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def read(path: Path) -> list[tuple[PastRun, list[Point]]]:
    """Read all runs of a history with their values; call it inside `turn`. The only write is a journal rollback."""
    journal = _beside(path, "-journal")
    _require_plain(path)
    for other in (_beside(path, "-wal"), _beside(path, "-shm")):
        if os.path.lexists(other):
            raise _damaged(path, f"{other.name} lies beside it, which no history has")
    if not os.path.lexists(journal):
        return _read_checked(path, path, "ro")
    _require_plain(journal)
    if journal.read_bytes()[-len(JOURNAL_MAGIC) :] == JOURNAL_MAGIC:
        raise _damaged(path, f"{journal.name} names a further file, as none of ours does")
    # A writer was killed. SQLite rolls back by the journal, whoever wrote it: try it in a copy first.
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "history.sqlite"
        shutil.copyfile(path, copy)
        shutil.copyfile(journal, _beside(copy, "-journal"))
        found = _read_checked(copy, path, "rw")
    with in_words(path), contextlib.closing(connect(path, "rw")) as connection:
        connection.execute("SELECT COUNT(*) FROM runs").fetchone()
    return found


def _read_checked(path: Path, called: Path, mode: str) -> list[tuple[PastRun, list[Point]]]:
    """Read and validate the content of a file; errors name it as `called`."""
    try:
        with in_words(called), contextlib.closing(connect(path, mode)) as connection:
            if mode == "rw":
                connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # rolls back what was left
            _check_header(path)
            _check_tables(connection)
            return _read_rows(connection)
    except DamagedHistoryError:
        raise
    except (ValueError, RecursionError, OverflowError) as error:
        raise _damaged(called, str(error)) from error


def _require_plain(path: Path) -> None:
    """Reject anything but a plain file of possible size before it is opened: reading a pipe would block."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{path} is a directory; give the name of a file for the history")
    if stat.S_ISLNK(status.st_mode):
        raise DamagedHistoryError(f"the history {path} is a symbolic link; give the name of the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise _damaged(path, "it is not a plain file")
    if status.st_size > MOST_BYTES:
        raise _damaged(path, f"{status.st_size} bytes are more than {MOST_BYTES}")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"the history {path} cannot be read: you have no permission")


def _check_header(path: Path) -> None:
    """Validate the SQLite header: everything but sizes and counters is the same in each file of ours."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    size = path.stat().st_size
    if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
        raise ValueError("it is empty" if not size else "it does not begin as such a file does")
    page_bytes, *form = struct.unpack(">H6B", header[16:24])
    changed, pages = struct.unpack(">2I", header[24:32])
    format_, _, auto_vacuum, encoding, version, incremental, application = struct.unpack(">7I", header[44:72])
    (valid_for,) = struct.unpack(">I", header[92:96])
    if (application, version) != (APPLICATION, VERSION):
        raise ValueError("it is a database of something else, or of another version")
    if form != [1, 1, 0, 64, 32, 32] or (format_, auto_vacuum, encoding, incremental) != (4, 0, 1, 0):
        raise ValueError("its header is not as ours is")
    if size != pages * (65536 if page_bytes == 1 else page_bytes) or changed != valid_for:
        raise ValueError("it is cut short or has something added")


def _check_tables(connection: sqlite3.Connection) -> None:
    """Validate that there are only our tables (no trigger, view or index) and that the structure is sound."""
    entries = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 9").fetchall()
    if sorted(entries) != sorted(("table", name, name, text) for name, text in TABLES.items()):
        raise ValueError("its tables are not ours")
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != ("ok",):
        raise ValueError(f"its structure is damaged ({' '.join(str(found and found[0]).split())[:200]})")
    if connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0] > MOST_RUNS:
        raise ValueError(f"it has more than {MOST_RUNS} runs")


def _read_rows(connection: sqlite3.Connection) -> list[tuple[PastRun, list[Point]]]:
    """Read all rows, each validated against its stored digest."""
    runs: list[tuple[PastRun, list[Point]]] = []
    digests, counts = [], []
    for number, *row, written in connection.execute("SELECT * FROM runs ORDER BY id"):
        run, count = read_run(tuple(row))
        if number != len(runs) + 1 or digest(number, row) != written:
            raise ValueError(f"run {len(runs) + 1} is not as it was written")
        runs.append((run, []))
        digests.append(written)
        counts.append(count)
    for number, place, *row, written in connection.execute("SELECT * FROM figures ORDER BY run, place"):
        if not (isinstance(number, int) and 1 <= number <= len(runs)):
            raise ValueError("there is a figure of no run")
        run, points = runs[number - 1]
        points.append(read_point(run, tuple(row)))
        if place != len(points) - 1 or digest(digests[number - 1], place, row) != written:
            raise ValueError(f"a figure of run {number} is not as it was written")
    if [len(points) for _, points in runs] != counts:
        raise ValueError("figures are missing")
    return runs


def _damaged(path: Path, reason: str) -> DamagedHistoryError:
    return DamagedHistoryError(f"{path} is no history of benchmarks: {reason}; {MOVE_AWAY}")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
