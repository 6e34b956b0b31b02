"""Saving a ring as segments: small, exact, and refused when damaged or foreign."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from velocirl.buffers import segments
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import ReplayBuffer
from velocirl.buffers.segments import (
    DamagedSegmentError,
    Segment,
    load_rows,
    remove_others,
    save_rows,
    segments_from,
)

TYPE = transition_type(1, Act(1, "int32", 1))


def numbered(first, count):
    records = np.zeros(count, TYPE)
    records["reward"] = np.arange(first, first + count)
    return records


def grow(buffer, count):
    buffer.add(numbered(int(buffer.counts[2]), count))


def save(directory, buffer, known=()):
    return save_rows(directory, buffer.rows[: len(buffer)], buffer.counts, known)


def spans(listed):
    return [one[:2] for one in listed]


@settings(max_examples=50, deadline=None)
@given(
    capacity=some.integers(1, 20),
    batches=some.lists(some.integers(0, 45), min_size=1, max_size=8),
    rows=some.integers(1, 9),
    keep=some.integers(1, 3),
)
def test_the_newest_saves_can_all_be_loaded(tmp_path_factory, capacity, batches, rows, keep):
    directory = tmp_path_factory.mktemp("segments")
    buffer, saved, listed = ReplayBuffer(capacity, TYPE, seed=0), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "BYTES", rows * TYPE.itemsize)
        for count in batches:
            grow(buffer, count)
            listed = save(directory, buffer, listed)
            saved = [*saved, (listed, buffer.state())][-keep:]
            remove_others(directory, (one for some, _ in saved for one in some))
    for some_segments, state in saved:
        found = load_rows(directory, TYPE, state["counts"], some_segments)
        np.testing.assert_array_equal(found, state["rows"])
    assert {path.name for path in directory.iterdir()} == {one.name for some, _ in saved for one in some}


def test_a_save_writes_only_what_is_new(tmp_path):
    buffer = ReplayBuffer(10_000, TYPE, seed=0)
    grow(buffer, 9000)
    listed = save(tmp_path, buffer)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    grow(buffer, 20)
    listed = save(tmp_path, buffer, listed)
    new = [path for path in tmp_path.iterdir() if path not in before]
    assert [path.stat().st_size for path in new] == [4096 + 20 * TYPE.itemsize]
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert spans(listed) == spans(save(tmp_path, buffer, listed)) == [(0, 9000), (9000, 9020)]


def test_a_large_save_comes_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BYTES", 7 * TYPE.itemsize + 1)
    buffer = ReplayBuffer(16, TYPE, seed=0)
    grow(buffer, 20)
    assert spans(save(tmp_path, buffer)) == [(4, 11), (11, 18), (18, 20)]


def test_a_prioritised_and_mapped_buffer_goes_on_exactly(tmp_path):
    buffer, listed = PrioritisedReplayBuffer(50, TYPE, seed=0, path=tmp_path / "ring"), []
    for _ in range(3):
        grow(buffer, 30)
        buffer.update(buffer.sample(8, 0.5)[1], np.arange(8, dtype=np.float32))
        listed = save(tmp_path / "saved", buffer, listed)
    other = PrioritisedReplayBuffer(50, TYPE, seed=1)
    other.load_state({**buffer.bookkeeping(), "rows": load_rows(tmp_path / "saved", TYPE, buffer.counts, listed)})
    for name, array in buffer.state().items():
        np.testing.assert_array_equal(other.state()[name], array)
    for mine, theirs in zip(buffer.sample(20, 0.7), other.sample(20, 0.7), strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Fetched:
    """Rows that are elsewhere: they come in stretches, never all at once."""

    def __init__(self, rows):
        self._rows = rows
        self.dtype, self.most = rows.dtype, 0

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, stretch):
        self.most = max(self.most, stretch.stop - stretch.start)
        return self._rows[stretch].copy()


def test_rows_of_another_device_are_fetched_by_stretch(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BYTES", 8 * TYPE.itemsize)
    buffer = ReplayBuffer(40, TYPE, seed=0)
    grow(buffer, 55)
    fetched = Fetched(buffer.rows)
    listed = save_rows(tmp_path, fetched, buffer.counts)
    assert fetched.most == 8
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, buffer.counts, listed), buffer.rows)


def test_very_many_rows_are_put_together_outside_of_memory(tmp_path, monkeypatch):
    buffer = ReplayBuffer(500, TYPE, seed=0)
    grow(buffer, 777)
    listed = save(tmp_path, buffer)
    monkeypatch.setattr(segments, "MAPPED", 1)
    found = load_rows(tmp_path, TYPE, buffer.counts, listed)
    np.testing.assert_array_equal(found, buffer.rows)
    assert [path.name for path in tmp_path.iterdir()] == [one.name for one in listed]  # no file is left behind


def test_another_way_from_an_earlier_save(tmp_path):
    buffer = ReplayBuffer(10, TYPE, seed=0)
    grow(buffer, 6)
    early, state = save(tmp_path, buffer), buffer.state()
    grow(buffer, 3)
    late, late_rows = save(tmp_path, buffer, early), buffer.state()
    buffer.load_state(state)
    buffer.add(numbered(500, 4))
    changed = save(tmp_path, buffer, late)
    assert changed[0] == early[0]  # what both ways have in common is written once
    assert spans(changed) == [(0, 6), (6, 10)]
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, buffer.counts, changed), buffer.rows)
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, late_rows["counts"], late), late_rows["rows"])


def test_what_lies_between_fields_is_no_change(tmp_path):
    buffer = ReplayBuffer(40, TYPE, seed=0)
    assert sum(field.itemsize for field, _ in TYPE.fields.values()) < TYPE.itemsize
    grow(buffer, 5)
    listed = save(tmp_path, buffer)
    between = np.ones(TYPE.itemsize, bool)
    for field, offset in TYPE.fields.values():
        between[offset : offset + field.itemsize] = False
    buffer.rows.view(np.uint8).reshape(40, -1)[:, between] = 99  # as a copy by numpy may have it
    assert save(tmp_path, buffer, listed) == listed


@pytest.mark.parametrize("changed", [19, 14, 10])
def test_rows_that_were_changed_since_are_written_anew(tmp_path, changed):
    buffer, listed = ReplayBuffer(40, TYPE, seed=0), []
    for _ in range(4):
        grow(buffer, 5)
        listed = save(tmp_path, buffer, listed)
    buffer.rows["reward"][changed:20] = -1.0  # as where an episode was cut off, at the end
    grow(buffer, 3)
    again = save(tmp_path, buffer, listed)
    assert again[: changed // 5] == listed[: changed // 5]
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, buffer.counts, again), buffer.rows[:23])


@pytest.mark.parametrize("more", [0, 3, 24])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_what_was_lost_is_written_again(tmp_path, lost, more):
    buffer, listed = ReplayBuffer(40, TYPE, seed=0), []
    for _ in range(4):
        grow(buffer, 5)
        listed = save(tmp_path, buffer, listed)
    (tmp_path / listed[lost].name).unlink()
    grow(buffer, more)
    again = save(tmp_path, buffer, listed)
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, buffer.counts, again), buffer.rows[: len(buffer)])


@pytest.mark.parametrize("count", [5, 30, 45, 61])
def test_segments_of_a_stranger_are_not_believed(tmp_path, count):
    stranger, buffer = ReplayBuffer(40, TYPE, seed=0), ReplayBuffer(40, TYPE, seed=0)
    grow(stranger, 4)
    listed = save(tmp_path, stranger)
    grow(stranger, 17)
    listed = save(tmp_path, stranger, listed)
    buffer.add(numbered(1000, count))
    own = save(tmp_path, buffer, listed)
    np.testing.assert_array_equal(load_rows(tmp_path, TYPE, buffer.counts, own), buffer.rows[: min(count, 40)])


@pytest.fixture
def saved(tmp_path):
    buffer, listed = ReplayBuffer(20, TYPE, seed=0), []
    for _ in range(2):
        grow(buffer, 8)
        listed = save(tmp_path, buffer, listed)
    return buffer, listed, [tmp_path / one.name for one in listed]


@pytest.mark.parametrize("byte", [0, 30, 4000, 4096, 4200, -1])
def test_a_changed_byte_is_found(saved, tmp_path, byte):
    buffer, listed, paths = saved
    content = bytearray(paths[1].read_bytes())
    content[byte] ^= 1
    paths[1].write_bytes(content)
    with pytest.raises(DamagedSegmentError, match=f"{paths[1].name} is damaged"):
        load_rows(tmp_path, TYPE, buffer.counts, listed)


def test_a_pipe_in_the_place_of_a_segment_does_not_hang(saved, tmp_path):
    buffer, listed, paths = saved
    paths[0].unlink()
    os.mkfifo(paths[0])
    with pytest.raises(DamagedSegmentError, match="is not a plain file"):
        load_rows(tmp_path, TYPE, buffer.counts, listed)


def test_missing_short_and_long_files_are_found(saved, tmp_path):
    buffer, listed, paths = saved
    content = paths[0].read_bytes()
    for wrong in (content[:-1], content + b"x", content[:100], b""):
        paths[0].write_bytes(wrong)
        with pytest.raises(DamagedSegmentError, match="is damaged"):
            load_rows(tmp_path, TYPE, buffer.counts, listed)
    paths[0].unlink()
    with pytest.raises(DamagedSegmentError, match="is missing; the checkpoint needs its rows 0 to 7"):
        load_rows(tmp_path, TYPE, buffer.counts, listed)


def test_rows_of_another_kind_are_refused(saved, tmp_path):
    buffer, listed, _ = saved
    with pytest.raises(DamagedSegmentError, match="rows of another kind"):
        load_rows(tmp_path, transition_type(1, Act(1, "float32", 1)), buffer.counts, listed)


def test_a_list_that_is_not_that_of_the_ring_is_refused(saved, tmp_path):
    buffer, listed, _ = saved
    for wrong in (listed[:1], listed[1:], listed[::-1], [], [*listed, *listed]):
        with pytest.raises(DamagedSegmentError, match="not rows 0 to 15 one after"):
            load_rows(tmp_path, TYPE, buffer.counts, wrong)


GOOD = "a" * 64


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        "ab",
        [[0, 8]],
        [[0, 8, GOOD, 1]],
        [[0, 8, "../../x"]],
        [[0, 8, GOOD.upper()]],
        [[8, 8, GOOD]],
        [[-1, 8, GOOD]],
        [["0", 8, GOOD]],
        [[0, 8.0, GOOD]],
        [[0, True, GOOD]],
        [[0, 10**15, GOOD]],
        [[0, 8, 5]],
        [None],
    ],
)
def test_what_is_no_list_of_segments_is_refused(wrong):
    with pytest.raises(ValueError, match="not one that velocirl writes"):
        segments_from(wrong)
    assert segments_from([[0, 8, GOOD]]) == [Segment(0, 8, GOOD)]


def test_only_what_nobody_needs_is_removed(saved, tmp_path):
    _, listed, paths = saved
    others = [tmp_path / "notes.txt", tmp_path / "x.rows"]
    for path in (*others, tmp_path / ".abc.unfinished"):
        path.touch()
    remove_others(tmp_path, listed[1:])
    assert sorted(tmp_path.iterdir()) == sorted([*others, paths[1]])
    remove_others(tmp_path / "nowhere", listed)


def test_a_disk_without_room_leaves_what_was_there(saved, tmp_path, monkeypatch):
    buffer, listed, paths = saved
    grow(buffer, 2)

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(segments.os, "fsync", full)
        with pytest.raises(OSError, match="earlier saves are untouched"):
            save(tmp_path, buffer, listed)
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert spans(save(tmp_path, buffer, listed)) == [(0, 8), (8, 16), (16, 18)]
