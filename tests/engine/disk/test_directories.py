"""Where things are kept: the user's own places, moved together by VELOCIRL_HOME."""

import os
import stat
from pathlib import Path

import pytest

from velocirl.engine.disk import directories
from velocirl.engine.disk.directories import cache_directory, data_directory
from velocirl.engine.disk.files import UnsafePathError

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("VELOCIRL_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_data_lies_where_the_system_keeps_data(home, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    assert data_directory() == home / ".local" / "share" / "velocirl"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_directory() == home / "Library" / "Application Support" / "velocirl"


def test_xdg_data_home_moves_the_data_and_an_empty_one_does_not(home, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    assert data_directory() == Path("/elsewhere/velocirl")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert data_directory() == home / ".local" / "share" / "velocirl"


def test_velocirl_home_comes_first_and_moves_the_cache_too(home, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    monkeypatch.setenv("VELOCIRL_HOME", "~/mine")
    assert data_directory() == home / "mine"
    assert cache_directory() == home / "mine" / "compiled"


def test_asking_where_data_lies_creates_nothing(home):
    data_directory()
    assert list(home.iterdir()) == []


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("opened", [0o755, 0o750, 0o770, 0o777])
def test_a_cache_of_ones_own_is_closed_to_others(home, opened):
    path = cache_directory()
    assert mode(path) == 0o700
    path.chmod(opened)
    assert mode(cache_directory()) == 0o700


@pytest.mark.parametrize(("found", "left"), [(0o755, 0o755), (0o775, 0o755), (0o777, 0o755), (0o1777, 0o1777)])
@pytest.mark.parametrize("ask", [cache_directory, data_directory])
def test_a_home_of_ones_own_can_be_written_by_nobody_else(home, monkeypatch, ask, found, left):
    """But where the sticky bit keeps others from what is not theirs: /tmp is not for us to close."""
    mine = home / "mine"
    mine.mkdir()
    mine.chmod(found)
    monkeypatch.setenv("VELOCIRL_HOME", str(mine))
    ask()
    assert mode(mine) == left


def test_where_nothing_can_be_closed_to_others_nothing_is_kept(home, monkeypatch):
    """A file system of another system's, on which everything belongs to everybody."""
    cache_directory().chmod(0o777)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    with pytest.raises(UnsafePathError, match=r"cannot be closed to others.*set VELOCIRL_HOME"):
        cache_directory()


def test_directories_that_are_made_on_the_way_are_private(home, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(home / "some" / "place"))
    before = os.umask(0)
    try:
        cache_directory()
    finally:
        os.umask(before)
    assert [mode(path) for path in (home / "some", home / "some" / "place", home / "some" / "place" / "compiled")] == [
        0o700
    ] * 3


@needs_root
@pytest.mark.parametrize("ask", [cache_directory, data_directory])
@pytest.mark.parametrize("place", ["their", "their/own/home", "linked", "link/home", "behind/theirs"])
def test_a_home_that_somebody_else_decides_on_is_refused(home, monkeypatch, ask, place):
    """It is theirs, lies in a directory of theirs, or is reached by a link of theirs or through one to theirs."""
    (home / "their" / "own" / "home").mkdir(parents=True)
    (home / "mine" / "home").mkdir(parents=True)
    (home / "linked").symlink_to("their")
    (home / "link").symlink_to("mine")
    (home / "behind").symlink_to(home / "their" / "own")
    os.chown(home / "their", 12345, 12345)
    os.chown(home / "link", 12345, 12345, follow_symlinks=False)
    monkeypatch.setenv("VELOCIRL_HOME", str(home / place))
    named = {"link/home": "link"}.get(place, "their")
    fault = rf"{home}/{named} belongs to user 12345, not to you.*set VELOCIRL_HOME to a directory of your own"
    with pytest.raises(UnsafePathError, match=fault):
        ask()


@pytest.mark.parametrize("ask", [cache_directory, data_directory])
def test_a_home_below_a_directory_that_anyone_may_write_is_refused(home, monkeypatch, ask):
    """Anyone could move it away and put something in its place, but where the sticky bit is set, as in /tmp."""
    shared = home / "shared"
    (shared / "mine").mkdir(parents=True)
    monkeypatch.setenv("VELOCIRL_HOME", str(shared / "mine"))
    shared.chmod(0o777)
    with pytest.raises(UnsafePathError, match=rf"{shared} can be written by anyone.*set VELOCIRL_HOME"):
        ask()
    shared.chmod(0o1777)
    ask()


def test_links_of_ones_own_are_followed(home, monkeypatch):
    """Homes lie on scratch disks and the like."""
    (home / "disk" / "cache").mkdir(parents=True)
    (home / "link").symlink_to("disk/../disk")
    (home / "mine").symlink_to(home / "link" / "cache" / "new")
    monkeypatch.setenv("VELOCIRL_HOME", str(home / "mine"))
    assert cache_directory() == home / "mine" / "compiled"
    assert (home / "disk" / "cache" / "new" / "compiled").is_dir()
    (home / "round").symlink_to("round")
    monkeypatch.setenv("VELOCIRL_HOME", str(home / "round"))
    with pytest.raises(OSError, match="Too many levels"):
        cache_directory()


def test_root_is_trusted_by_the_name_that_a_container_gives_it(monkeypatch):
    assert directories._keepers.__wrapped__(1000) == {1000, 0}
    monkeypatch.setattr(Path, "read_text", lambda _: "      1000       1000          1\n")
    assert directories._keepers.__wrapped__(1000) == {1000, 0, 65534}
