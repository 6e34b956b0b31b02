"""Files that somebody else may have made: only plain ones are opened, only one's own are trusted, JSON is strict."""

import os
import socket
from pathlib import Path

import pytest

from velocirl.engine.disk.files import (
    MOST_DEPTH,
    NotPlainFileError,
    UnsafePathError,
    open_own,
    open_plain,
    parse_json,
    plain_handle,
    read_plain,
)

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


def test_a_plain_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "file") == b"content"
    with open_plain(str(tmp_path / "link")) as file:
        assert file.read() == b"content"


def a_pipe(path):
    os.mkfifo(path)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def a_device(path):
    path.symlink_to("/dev/zero")  # which would never end


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_device])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path, monkeypatch, make, flags):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = tmp_path.relative_to(tmp_path) / "thing"
    make(path)
    with pytest.raises(NotPlainFileError, match=r"^thing is not a plain file$"):
        plain_handle(path, flags)


def test_a_directory_and_a_missing_file_have_their_usual_errors(tmp_path):
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        open_plain(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "missing")


def test_what_is_refused_leaves_no_descriptor(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(NotPlainFileError):
            open_plain(tmp_path / "pipe")
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_file_of_ones_own_is_trusted(tmp_path):
    path = tmp_path / "own"
    path.write_bytes(b"mine")
    path.chmod(0o644)
    with open_own(path) as file:
        assert file.read() == b"mine"


def test_a_link_is_not_trusted_wherever_it_leads(tmp_path):
    (tmp_path / "own").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("own")
    with pytest.raises(UnsafePathError, match=r"link is a symbolic link.*remove it"):
        open_own(tmp_path / "link")


@needs_root
def test_a_file_of_somebody_else_is_not_trusted(tmp_path):
    path = tmp_path / "theirs"
    path.write_bytes(b"theirs")
    os.chown(path, 12345, 12345)
    with pytest.raises(UnsafePathError, match=r"theirs belongs to user 12345, not to you.*set VELOCIRL_HOME"):
        open_own(path)
    assert path.read_bytes() == b"theirs"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_could_write_is_begun_anew(tmp_path, mode):
    path = tmp_path / "open"
    path.write_bytes(b"whose?")
    path.chmod(mode)
    with pytest.warns(UserWarning, match="could be written by others"), pytest.raises(FileNotFoundError):
        open_own(path)
    assert not path.exists()


@needs_root
def test_what_is_checked_is_what_is_read(tmp_path, monkeypatch):
    """A file that is swapped for another between check and use is the attack; here, right after it was opened."""
    path, theirs = tmp_path / "file", tmp_path / "theirs"
    path.write_bytes(b"mine")
    theirs.write_bytes(b"theirs")
    os.chown(theirs, 12345, 12345)
    look = os.fstat

    def look_late(handle):
        if theirs.exists():
            theirs.replace(path)
        return look(handle)

    monkeypatch.setattr(os, "fstat", look_late)
    with open_own(path) as file:
        assert file.read() == b"mine"
    with pytest.raises(UnsafePathError, match="12345"):
        open_own(path)


def test_json_as_we_write_it_is_read():
    assert parse_json('{"a": [1, 2.5, null, {"b": "text"}], "c": true}') == {
        "a": [1, 2.5, None, {"b": "text"}],
        "c": True,
    }
    assert parse_json(b"3") == 3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "a key stands twice in one object: 'c'"),
        ("[NaN]", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("[1, 2", "Expecting"),
        (b"\xff\xff", "decode"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), f"nested deeper than {MOST_DEPTH} levels"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, f"nested deeper than {MOST_DEPTH} levels"),
        ("9" * 10_000, "digits"),
    ],
)
def test_json_that_readers_understand_differently_or_not_at_all_is_refused(text, fault):
    with pytest.raises(ValueError, match=fault):
        parse_json(text)


def test_json_may_be_as_deep_as_it_says():
    parse_json("[" * MOST_DEPTH + "]" * MOST_DEPTH)
