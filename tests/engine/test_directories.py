"""Where things are kept: the user's own places, moved together by VELOCIRL_HOME."""

import stat
from pathlib import Path

import pytest

from velocirl.engine.directories import UnsafeDirectoryError, cache_directory, data_directory


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


def test_the_cache_is_private_and_an_open_one_is_refused(home):
    path = cache_directory()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o755)
    with pytest.raises(UnsafeDirectoryError, match="open to others"):
        cache_directory()
