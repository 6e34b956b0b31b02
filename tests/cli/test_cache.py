"""`velocirl cache`: what is kept of compiled code, how much room it takes, and how to get rid of it."""

import json
import os
import subprocess

import pytest

from velocirl.cli.main import main
from velocirl.engine.compiler.caching.cache import find_code, keep_code
from velocirl.engine.disk.directories import cache_directory

KEPT = {"one.unit": 3000, "two.unit": 1000, "three.ltoir": 500}
HELD = {name: size + 32 for name, size in KEPT.items()}  # with their digests


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VELOCIRL_CACHE_SIZE", raising=False)
    for name, size in KEPT.items():
        keep_code(name, bytes(size))
    return tmp_path / "home"


def shown(capsys, *arguments):
    main(["cache", *arguments])
    return capsys.readouterr().out


def test_it_shows_what_is_kept_the_largest_first(capsys):
    first, _, *lines = shown(capsys).splitlines()
    assert first == f"3 files, 4.6 kB of 2.15 GB, in {cache_directory()}"
    rows = [line.split() for line in lines if line.strip()]
    assert rows[0][:6] == ["functions", "for", "the", "CPU", "2", "4.06"]
    assert rows[1][:6] == ["functions", "for", "a", "GPU", "1", "532"]


def test_as_json(capsys, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", "500M")
    assert json.loads(shown(capsys, "--json")) == {
        "directory": str(cache_directory()),
        "files": 3,
        "bytes": sum(HELD.values()),
        "bound": 500 * 2**20,
        "kinds": {"functions for the CPU": 4064, "functions for a GPU": 532},
    }


def test_clearing_removes_everything_and_only_that(home, capsys):
    (home / "runs").mkdir()
    assert shown(capsys, "--clear") == "removed 3 files, 4.6 kB\n"
    assert find_code("one.unit") is None
    assert (home / "runs").is_dir()
    assert shown(capsys).splitlines() == [f"0 files, 0 B of 2.15 GB, in {cache_directory()}"]
    keep_code("one.unit", b"again")
    assert json.loads(shown(capsys, "--clear", "--json")) == {"removed": 1, "bytes": 37}


def test_mistakes_are_refused(refused, monkeypatch):
    assert "did you mean --clear?" in refused("cache", "--clea")
    assert "'everything' is one word too many" in refused("cache", "everything")
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", "much")
    assert "VELOCIRL_CACHE_SIZE is a number of bytes such as 500M or 2G, not 'much'" in refused("cache")


def test_an_empty_home_has_an_empty_cache(command, tmp_path):
    environment = {**os.environ, "VELOCIRL_HOME": str(tmp_path / "new")}
    said = subprocess.run([*command, "cache", "--json"], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout)["bytes"] == 0
