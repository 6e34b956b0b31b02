"""Paths below a directory of somebody else's: nothing is followed, nothing but plain files is opened."""

import os

import pytest

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import plain_handle, read_plain
from velocirl.engine.disk.writing import remove_unfinished, write_whole


@pytest.fixture
def place(tmp_path):
    """A directory with a file in a directory, and one outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"outside")
    confined = ConfinedPath(tmp_path / "root")
    (confined / "inner").make_directory()
    write_whole(confined / "inner" / "file", [b"inside"])
    return confined


def test_what_lies_below_is_read_written_renamed_and_removed(place):
    file = place / "inner" / "file"
    assert read_plain(file) == b"inside"
    assert (place / "inner").names() == ["file"]
    assert (file.is_file(), file.exists(), file.status().st_size) == (True, True, 6)
    assert (file.path.stat().st_mode & 0o777, file.parent.path.stat().st_mode & 0o777) == (0o600, 0o700)
    file.rename("other")
    assert read_plain(place / "inner" / "other") == b"inside"
    assert not file.exists()
    (place / "inner" / "other").remove()
    (place / "inner" / "other").remove()  # it is gone already
    assert (place / "inner").names() == (place / "missing").names() == []
    assert (place / "missing" / "file").status() is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b"])
def test_names_cannot_lead_out(place, name):
    with pytest.raises(ValueError, match="is not the name of a file"):
        place / name


def test_linked_files_are_not_followed(place):
    link = place / "link"
    link.path.symlink_to(place.root.parent / "outside" / "file")
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, os.O_RDWR):
        with pytest.raises(NotPlainFileError, match=r"root/link is not a plain file but a symbolic link$"):
            plain_handle(link, flags)
    assert (link.is_file(), link.exists()) == (False, True)
    write_whole(link, [b"new"])  # takes the place of the link
    assert read_plain(link) == b"new"
    assert (place.root.parent / "outside" / "file").read_bytes() == b"outside"


@pytest.mark.parametrize("target", ["../outside", "inner", "linked"])
def test_linked_directories_are_not_followed(place, target):
    (place / "linked").path.symlink_to(target)
    linked = place / "linked"
    file = linked / "file"
    for use in (
        lambda: read_plain(file), lambda: write_whole(file, [b"new"]), lambda: file.rename("other"), file.remove,
        file.status, linked.names, linked.make_directory, lambda: remove_unfinished(linked),
    ):  # fmt: skip
        with pytest.raises(NotPlainFileError, match=r"root/linked is not a directory but a symbolic link$"):
            use()
    assert (place.root.parent / "outside" / "file").read_bytes() == b"outside"
    assert read_plain(place / "inner" / "file") == b"inside"


def test_pipes_and_files_in_the_place_of_directories_are_refused_at_once(place):
    os.mkfifo((place / "pipe").path)
    with pytest.raises(NotPlainFileError, match=r"root/pipe is not a plain file$"):
        read_plain(place / "pipe")
    for name in ("pipe", "file"):
        (place / "file").path.touch()
        with pytest.raises(NotPlainFileError, match=rf"root/{name} is not a directory$"):
            read_plain(place / name / "file")


def test_a_link_to_the_root_is_followed(place):
    (place.root.parent / "root-link").symlink_to(place.root)
    assert read_plain(ConfinedPath(place.root.parent / "root-link") / "inner" / "file") == b"inside"
