"""HDF5 of somebody else's: links lead nowhere, sizes are known before anything is unpacked, damage is a sentence."""

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from textwrap import dedent

import h5py
import numpy as np
import pytest
from gymnasium.spaces import Box

from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.episodes import Episode
from velocirl.buffers.data.info import DatasetInfo
from velocirl.datasets.minari.exporting import export_minari
from velocirl.datasets.minari.importing import import_minari

BOX = Box(-1, 1, (2,), np.float32)


@pytest.fixture(autouse=True)
def _patience():
    """Give up where a pipe is waited for."""

    def give_up(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def foreign(tmp_path):
    """A directory in Minari's layout that somebody else wrote, with costs among the infos."""
    rng = np.random.default_rng(0)
    episode = Episode(rng.uniform(-1, 1, (4, 2)), rng.uniform(-1, 1, (3, 2)), np.arange(3.0), np.ones((3, 1)))
    path = export_minari(
        Dataset.from_episodes([episode], DatasetInfo(BOX, BOX, constraints=("hot",))), tmp_path / "x-v0"
    )
    description = json.loads((path / "data" / "metadata.json").read_text())
    del description["velocirl"]
    (path / "data" / "metadata.json").write_text(json.dumps(description))
    return path


def changed(path, change):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        change(file)


def replaced(name, value):
    def change(file):
        del file[name]
        file[name] = value

    return change


@pytest.mark.parametrize("name", ["episode_0", "episode_0/infos", "episode_0/infos/costs", "episode_0/rewards"])
@pytest.mark.parametrize("kind", ["a pipe", "a file", "itself", "the root"])
def test_links_are_refused_and_not_followed(foreign, tmp_path, name, kind):
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other["secret"] = np.zeros(3)
    links = {
        "a pipe": h5py.ExternalLink(tmp_path / "pipe", "/x"),
        "a file": h5py.ExternalLink(tmp_path / "other.hdf5", "/secret"),
        "itself": h5py.SoftLink(f"/{name}"),
        "the root": h5py.SoftLink("/"),
    }
    changed(foreign, replaced(name, links[kind]))
    with pytest.raises(DatasetError, match=rf"x-v0: /{name} is a link, which may lead anywhere"):
        import_minari(foreign)


@pytest.mark.parametrize("name", ["data", "data/main_data.hdf5", "data/metadata.json"])
@pytest.mark.parametrize("put", [os.mkfifo, os.symlink])
def test_links_and_pipes_in_the_place_of_files_are_refused(foreign, tmp_path, name, put):
    place, aside = foreign / name, tmp_path / "aside"
    place.rename(aside)
    put(*((aside, place) if put is os.symlink else (place,)))
    with pytest.raises(DatasetError, match="x-v0") as raised:
        import_minari(foreign)
    assert "is not a plain file" in str(raised.value) or "is not a directory" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rewards", 1.0, "/episode_0/rewards is a single value"),
        ("terminations", True, "/episode_0/terminations is a single value"),
        ("observations", np.float32(1), "/episode_0/observations is a single value"),
        ("infos/costs", 1.0, "/episode_0/infos/costs is a single value"),
        ("rewards", h5py.Empty("f4"), "/episode_0/rewards is a single value"),
        ("infos", np.zeros(3), "/episode_0/infos is not a group"),
        ("rewards", np.array([b"a"] * 3, "S1"), "data are numbers"),
        ("rewards", np.zeros(3, np.longdouble), "data are numbers"),
        ("infos/costs", np.zeros((0, 1)), r"costs of episode 0 has the shape \(0, 1\)|its main_data"),
        ("infos/costs", np.zeros((4, 2000)), "has 2,000 values in a row; at most 1,000 have names"),
        ("terminations", np.zeros((3, 2), bool), "its main_data.hdf5 is damaged, or means no good"),
        ("rewards", np.zeros((3, 1)), r"rewards of episode 0 has the shape \(3, 1\), and must have \(3,\)"),
    ],
)
def test_what_no_data_set_has_is_refused(foreign, name, value, reason):
    changed(foreign, replaced(f"episode_0/{name}", value))
    with pytest.raises(DatasetError, match=reason):
        import_minari(foreign)


def compressed(name, shape, dtype, **options):
    """Replace an array by zeros that take next to no room."""

    def change(file):
        del file[name]
        file.create_dataset(name, data=np.zeros(shape, dtype), compression="gzip", compression_opts=9, **options)

    return change


def hidden_bomb(file):
    """A chunk of 24 bytes that holds 300 MB."""
    import zlib

    del file["episode_0/rewards"]
    made = file.create_dataset("episode_0/rewards", (3,), "f8", chunks=(3,), compression="gzip")
    made.id.write_direct_chunk((0,), zlib.compress(bytes(300_000_000), 9))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            compressed("episode_0/rewards", 40_000_000, "f8"),
            "/episode_0/rewards, with what was read before, would take",
        ),
        (compressed("episode_0/observations", (4, 80_000_000), "u1"), "observations, with what was read before, would"),
        (
            compressed("episode_0/rewards", 3, "f8", chunks=(40_000_000,), maxshape=(None,)),
            "would take 320,000,0.. bytes",
        ),
        (hidden_bomb, "a chunk has more than its 24 bytes, or ends too early"),
    ],
)
def test_a_small_file_is_refused_before_it_fills_the_memory(foreign, change, reason):
    changed(foreign, change)
    assert (foreign / "data" / "main_data.hdf5").stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(DatasetError, match=reason):
        import_minari(foreign)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_arrays_that_are_read_again_and_again_count_each_time(foreign):
    def change(file):
        big = file.create_dataset("big", data=np.zeros((100_001, 2), np.float32), compression="gzip")
        small = {
            name: file.create_dataset(name, data=np.zeros(100_000, bool)) for name in ("terminations", "truncations")
        }
        rewards = file.create_dataset("rewards", data=np.zeros(100_000, np.float32), compression="gzip")
        actions = file.create_dataset("actions", data=np.zeros((100_000, 2), np.float32), compression="gzip")
        for number in range(1, 400):
            group = file.create_group(f"episode_{number}")
            group["observations"], group["actions"], group["rewards"] = big, actions, rewards
            for name, one in small.items():
                group[name] = one
            group["infos/costs"] = file.require_dataset("costs", (100_001, 1), "f4", data=np.zeros((100_001, 1)))

    changed(foreign, change)
    path = foreign / "data" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"total_episodes": 400}))
    with pytest.raises(DatasetError, match="with what was read before, would take"):
        import_minari(foreign)


@pytest.mark.parametrize("options", [
    {"compression": "gzip"}, {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"shuffle": True},
    {"fletcher32": True}, {"chunks": True},
])  # fmt: skip
def test_compressed_arrays_come_back_as_they_were(foreign, options):
    plain = import_minari(foreign)

    def change(file):
        group = file["episode_0"]
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            values = group[name][()]
            del group[name]
            group.create_dataset(name, data=values, **{"chunks": (2, *values.shape[1:])} | options)

    changed(foreign, change)
    packed = import_minari(foreign)
    for name, column in plain.columns.items():
        assert column.tobytes() == packed.columns[name].tobytes(), name


def test_other_compression_is_refused_by_name(foreign):
    def change(file):
        del file["episode_0/rewards"]
        file.create_dataset("episode_0/rewards", data=np.zeros(3), compression="lzf")

    changed(foreign, change)
    with pytest.raises(DatasetError, match="is compressed by the filter 32000 of HDF5; velocirl reads gzip"):
        import_minari(foreign)


FULL = """
    import resource, signal, sys
    from pathlib import Path
    import numpy as np
    from gymnasium.spaces import Box
    from velocirl.buffers.data.dataset import Dataset
    from velocirl.buffers.data.episodes import Episode
    from velocirl.buffers.data.info import DatasetInfo
    from velocirl.datasets.minari.exporting import export_minari

    box = Box(-1, 1, (8,), np.float32)
    episode = Episode(np.zeros((101, 8)), np.zeros((100, 8)), np.zeros(100))
    data = Dataset.from_episodes([episode] * 30, DatasetInfo(box, box))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for most in (0, 1000, 10_000, 50_000, 200_000, 280_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        try:
            export_minari(data, Path(sys.argv[1]) / "x-v0")
        except OSError as error:
            print(error, flush=True)
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-c", dedent(FULL), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == 6
    assert all(
        "could not be written (File too large); nothing is left of it" in one for one in ended.stdout.splitlines()
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_leaves_of_an_export_is_removed_by_the_next(tmp_path):
    import fcntl

    data = Dataset.from_episodes([], DatasetInfo(BOX, BOX))
    left, busy, other = (
        tmp_path / f".{name}.unfinished" for name in ("x-v0.abcdefg1", "x-v0.abcdefg2", "y-v0.abcdefg1")
    )
    for one in (left, busy, other):
        (one / "data").mkdir(parents=True)
        (one / "data" / "main_data.hdf5").write_bytes(bytes(1000))
    handle = os.open(busy, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as whoever writes it does
    try:
        export_minari(data, tmp_path / "x-v0")
    finally:
        os.close(handle)
    assert sorted(one.name for one in tmp_path.iterdir()) == [busy.name, other.name, "x-v0"]
