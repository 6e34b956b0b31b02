"""Files under the name of a history that are none, or no longer: refused in one line, and left as they were."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from past_runs import HERE, planted_report, planted_result

from velocirl.bench.history.reading import JOURNAL_MAGIC
from velocirl.bench.history.rows import FIGURE_COLUMNS, RUN_COLUMNS, digest, identity_of
from velocirl.bench.history.runs import DamagedHistoryError, History
from velocirl.bench.history.schema import TABLES

HEADER = {  # the place of a byte
    "file format": 18,
    "page size": 16,
    "application": 71,
    "version": 63,
    "pages": 31,
    "encoding": 59,
    "free pages": 39,
    "changes": 27,
}
FIRST_RUN, FIRST_FIGURE = "UPDATE runs SET {} WHERE id = 1", "UPDATE figures SET {} WHERE run = 1 AND place = 0"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A history of three runs."""
    path = tmp_path_factory.mktemp("original") / "history.sqlite"
    history = History.open(path)
    for number in range(3):
        history.add(planted_report(number, [planted_result(), planted_result("other", 2.0 + number)]))
    return path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copy(original, tmp_path / "history.sqlite")


def everything(path):
    return History.open(path, create=False)._runs


def listing(directory):
    """All files of a directory, with their bytes and times."""
    return {
        one.name: (one.lstat().st_mtime_ns, one.lstat().st_mode, one.read_bytes() if one.is_file() else None)
        for one in directory.iterdir()
    }


def refused(path, reason, error=DamagedHistoryError):
    """Both reading and adding are refused in one line that names the file, and everything stays as it was."""
    before = listing(path.parent)
    for create in (True, False):
        with pytest.raises(error, match=reason) as caught:
            History.open(path, create=create)
        assert type(caught.value) is error
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    history = History(path, [])
    with pytest.raises(error):
        history.add(planted_report(9))
    assert listing(path.parent) == before
    return str(caught.value)


def alter(path, *statements):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))


def plant(path, table, **values):
    """Change the first row of a table, with a digest that fits: what somebody who wishes us ill would do."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        where = "id = 1" if table == "runs" else "run = 1 AND place = 0"
        for name, value in values.items():
            connection.execute(f'UPDATE {table} SET "{name}" = ? WHERE {where}', (value,))

        def fit(table, where, *before):
            columns = ", ".join(f'"{name}"' for name in (RUN_COLUMNS if table == "runs" else FIGURE_COLUMNS))
            row = connection.execute(f"SELECT {columns} FROM {table} WHERE {where}").fetchone()
            row = [value.hex() if isinstance(value, bytes) else value for value in row]
            connection.execute(f"UPDATE {table} SET digest = ? WHERE {where}", (digest(*before, row),))

        fit("runs", "id = 1", 1)
        (written,) = connection.execute("SELECT digest FROM runs WHERE id = 1").fetchone()
        for place in range(4):
            fit("figures", f"run = 1 AND place = {place}", written, place)


def test_a_sound_file_is_only_read(path, original):
    before = listing(path.parent)
    assert everything(path) == everything(original)
    assert listing(path.parent) == before
    plant(path, "runs")  # the digests of this test are those of the file
    assert everything(path) == everything(original)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is empty"), (b"SQLite format 3\0", "not a database|does not begin"), (b"{}" * 5000, "does not begin")],
    ids=["empty", "magic only", "text"],
)
def test_another_file(path, content, reason):
    path.write_bytes(content)
    message = refused(path, reason)
    assert message.endswith("move it away, and a new one is begun")


@pytest.mark.parametrize("part", HEADER)
def test_a_header_that_is_not_ours(path, part):
    content = bytearray(path.read_bytes())
    content[HEADER[part]] ^= 0x03 if part == "file format" else 0x10  # the first makes it a file with a WAL
    path.write_bytes(content)
    refused(path, "is no history of benchmarks")


@pytest.mark.parametrize("size", [50, 100, 4096, -4096, -1, 1, 4096 * 7])
def test_cut_short_or_with_something_behind_it(path, size):
    content = path.read_bytes()
    path.write_bytes(content[:size] if size in (50, 100, 4096) or size < 0 else content + b"\0" * size)
    refused(path, "is no history of benchmarks")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "CREATE VIEW v AS SELECT * FROM runs",
        "CREATE TABLE more (x)",
        "CREATE INDEX i ON figures (benchmark)",
        "ALTER TABLE runs ADD COLUMN more TEXT",
        "DROP TABLE figures",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 1",
        "PRAGMA journal_mode = WAL",
    ],
)
def test_tables_that_are_not_ours(path, statement):
    alter(path, statement)
    refused(path, "is no history of benchmarks: (its tables|it is a database|its header)")


def test_a_table_with_something_that_is_computed(path):
    text = TABLES["runs"].replace("digest TEXT NOT NULL", "digest TEXT NOT NULL CHECK (randomblob(1000000000) <> '')")
    alter(path, "PRAGMA writable_schema = ON", ("UPDATE sqlite_master SET sql = ? WHERE name = 'runs'", (text,)))
    refused(path, "its tables are not ours")


@pytest.mark.parametrize(
    "statement",
    [
        FIRST_FIGURE.format("median = 0.5, low = 0.5"),
        FIRST_FIGURE.format("samples = '[1.0]'"),
        FIRST_RUN.format("started = '2025-01-01T00:00:00+00:00'"),
        FIRST_RUN.format("complete = 0"),
        "DELETE FROM figures WHERE run = 3 AND place = 3",
        "DELETE FROM figures WHERE run = 3 AND place = 1",
        "DELETE FROM runs WHERE id = 3",
        "DELETE FROM runs WHERE id = 1",
        "INSERT INTO figures SELECT * FROM figures WHERE run = 1",
        "UPDATE figures SET run = 2 WHERE run = 1 AND place = 0",
        "UPDATE figures SET run = 99 WHERE run = 1",
        "UPDATE figures SET run = 'one' WHERE run = 1",
    ],
)
def test_rows_that_were_changed(path, statement):
    alter(path, statement)
    refused(path, "as it was written|missing|of no run")


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("figures", {"samples": "[NaN]"}),
        ("figures", {"samples": "[1e999]"}),
        ("figures", {"samples": "[]"}),
        ("figures", {"samples": "[" * 50_000}),
        ("figures", {"samples": '["1"]'}),
        ("figures", {"samples": "[" + "1.0, " * 250_000 + "1.0]"}),
        ("figures", {"median": "much"}),
        ("figures", {"median": float("inf")}),
        ("figures", {"median": 9e9}),
        ("figures", {"spread": -1.0}),
        ("figures", {"seconds": -1.0}),
        ("figures", {"reference": -1.0}),
        ("figures", {"benchmark": "steps\x1b]0;you\x07"}),
        ("figures", {"benchmark": b"steps"}),
        ("figures", {"contestant": "x" * 201}),
        ("figures", {"peer": 2}),
        ("figures", {"template": "{number.__class__}"}),
        ("runs", {"started": "2026-01-01"}),
        ("runs", {"started": "never"}),
        ("runs", {"commit": "c" * 1000}),
        ("runs", {"machine": "[]"}),
        ("runs", {"machine": '["P", "2", 24, ""]'}),
        ("runs", {"machine": '["\\u001b[2J", 2, 24, ""]'}),
        ("runs", {"machine": '["P", 0, 24, ""]'}),
        ("runs", {"versions": '{"numba": 1}'}),
        ("runs", {"versions": '{"numba": "\\u0007"}'}),
        ("runs", {"load": "idle"}),
        ("runs", {"settings": json.dumps({"a": [[]]})}),
        ("runs", {"figures": -1}),
        ("runs", {"figures": 2**40}),
    ],
    ids=str,
)
def test_values_that_cannot_be(path, table, values):
    plant(path, table, **values)
    message = refused(path, "is no history of benchmarks")
    assert "as it was written" not in message  # the digest fits: it is the value that is refused
    assert len(message) < 400 + len(str(path))


def test_links_directories_and_pipes(path, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    refused(link, "is a symbolic link; give the name of the file itself")
    dangling = tmp_path / "dangling.sqlite"
    dangling.symlink_to(tmp_path / "nothing")
    refused(dangling, "is a symbolic link")
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    refused(pipe, "not a plain file")
    directory = tmp_path / "directory.sqlite"
    directory.mkdir()
    refused(directory, "is a directory; give the name of a file", IsADirectoryError)


def test_too_large_a_file_is_not_read(path):
    os.truncate(path, 2**40)  # most of it is a hole
    before = path.stat()
    with pytest.raises(DamagedHistoryError, match="1099511627776 bytes are more than"):
        History.open(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_without_permission(original, open_directory):
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from past_runs import planted_report
from velocirl.bench.history.runs import History
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
for path in sys.argv[1:]:
    try:
        history = History.open(path)
        print("read", len(history.runs))
        history.add(planted_report(9))
    except OSError as error:
        print(type(error).__name__, error)
"""
    unreadable, readable, nowhere = (open_directory / name for name in ("unreadable", "readable", "shut"))
    for place in (unreadable, readable, nowhere):
        place.mkdir()
    shutil.copy(original, unreadable / "h.sqlite").chmod(0o000)
    shutil.copy(original, readable / "h.sqlite").chmod(0o444)
    readable.chmod(0o555)
    nowhere.chmod(0o555)
    files = [str(place / "h.sqlite") for place in (unreadable, readable, nowhere)]
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert re.match(r"PermissionError the history .*unreadable.* cannot be read", said[0])
    assert said[1] == "read 3"
    assert re.match(r"PermissionError the history .*readable.* cannot be written", said[2])
    assert re.match(r"PermissionError .*no history can be begun here \(Permission denied\)", said[3])
    assert len(said) == 4


@pytest.fixture
def open_directory():
    """A directory that other users may enter, unlike those of pytest."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    for place in directory.iterdir():
        place.chmod(0o755)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def killed(original, tmp_path_factory):
    """A history whose writer died in the middle, with its journal."""
    directory = tmp_path_factory.mktemp("killed")
    path = shutil.copy(original, directory / "writing.sqlite")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO figures SELECT f.* FROM figures AS f, figures, figures")
        connection.execute("UPDATE runs SET started = 'x'")
        for ending in ("", "-journal"):  # as they are at this moment
            shutil.copy(f"{path}{ending}", directory / f"history.sqlite{ending}")
        connection.execute("ROLLBACK")
    path.unlink()
    return directory


def test_a_journal_that_a_kill_left_is_undone(killed, original, tmp_path):
    path = shutil.copytree(killed, tmp_path / "here") / "history.sqlite"
    assert path.read_bytes() != original.read_bytes()
    assert everything(path) == everything(original)
    assert path.read_bytes() == original.read_bytes()
    assert list(listing(path.parent)) == ["history.sqlite"]


def test_a_forged_journal_changes_nothing(killed, path, original):
    content = bytearray((killed / "history.sqlite-journal").read_bytes())
    begin = content.index(b"SQLite format 3\0")  # the first page, as it would put it back
    header = content.rindex(JOURNAL_MAGIC, 0, begin)
    nonce, page_bytes = struct.unpack(">I8xI", content[header + 12 : header + 28])
    content[begin + 100 : begin + page_bytes] = bytes(page_bytes - 100)  # a file without tables, and a fitting checksum
    check = nonce + sum(content[begin + i] for i in range(page_bytes - 200, 0, -200))
    content[begin + page_bytes : begin + page_bytes + 4] = struct.pack(">I", check % 2**32)
    assert everything(path) == everything(original)
    path.with_name("history.sqlite-journal").write_bytes(content)
    refused(path, "is no history of benchmarks")


def test_a_journal_that_names_a_further_file_deletes_nothing(killed, tmp_path):
    path = shutil.copytree(killed, tmp_path / "here") / "history.sqlite"
    victim = tmp_path / "precious.txt"
    victim.write_text("precious")
    journal = path.with_name("history.sqlite-journal")
    name = str(victim).encode()
    check = sum(name) % 2**32
    page = struct.pack(">I", 2**30 // 4096 + 1)  # the page that is never written stands before a name
    with journal.open("ab") as file:
        file.write(page + name + struct.pack(">2I", len(name), check) + JOURNAL_MAGIC)
    refused(path, "names a further file")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_log_that_is_not_ours_is_not_read(path, ending):
    path.with_name(path.name + ending).write_bytes(b"\0" * 100)
    refused(path, "lies beside it")


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    cut=st.none() | st.floats(0, 1),
)
def test_whatever_happened_to_its_bytes_it_is_right_or_refused(original, tmp_path, flips, cut):
    content = bytearray(original.read_bytes())
    for place, change in flips:
        content[int(place * len(content))] ^= change
    if cut is not None:
        content = content[: int(cut * len(content))]
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    _right_or_refused(path, everything(original), content)


@pytest.mark.slow
def test_a_changed_bit_anywhere_is_right_or_refused(original, tmp_path):
    expected, content = everything(original), original.read_bytes()
    path = tmp_path / "history.sqlite"
    refusals = 0
    for place in [*range(300), *range(300, len(content), 7)]:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        refusals += _right_or_refused(path, expected, changed)
    used = len(content.replace(b"\0", b"")) / len(content)
    assert refusals > 0.5 * used * len(range(300, len(content), 7))


def _right_or_refused(path, expected, content):
    refusal = ""
    try:
        found = everything(path)
    except DamagedHistoryError as error:
        refusal = str(error)
    if refusal:
        assert str(path) in refusal
        assert "\n" not in refusal
    else:
        assert found == expected
    assert path.read_bytes() == content
    assert list(listing(path.parent)) == [path.name]
    return bool(refusal)


def test_the_machine_of_a_file_is_the_one_that_was_written(path):
    assert {run.machine for run, _ in everything(path)} == {identity_of(HERE)}
