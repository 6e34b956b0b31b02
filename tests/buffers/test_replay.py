"""The ring of transitions: order at the seam, even sampling, saving, and files that are not its own."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import FILLED, PLACE, TOTAL, ReplayBuffer, draw_place, written
from velocirl.engine.compiler.compiling import compile_loop, cpu_translator, learning_translator
from velocirl.engine.random import streams

TYPE = transition_type(2, Act(1, "int32", 3))


def numbered(first, count):
    """Records that say which they are in every field."""
    records = np.zeros(count, TYPE)
    numbers = np.arange(first, first + count)
    records["observation"], records["next_observation"] = numbers[:, None], numbers[:, None] + 1
    records["action"], records["reward"], records["ended"] = numbers[:, None], numbers, numbers % 3
    records["mask"] = numbers[:, None] % 2
    return records


@settings(max_examples=100, deadline=None)
@given(capacity=some.integers(1, 12), batches=some.lists(some.integers(0, 30), max_size=8))
def test_the_ring_holds_the_newest(capacity, batches):
    buffer, expected, total = ReplayBuffer(capacity, TYPE, seed=0), deque(maxlen=capacity), 0
    for count in batches:
        buffer.add(numbered(total, count))
        expected.extend(range(total, total + count))
        total += count
        assert buffer.counts.tolist() == [total % capacity, len(expected), total]
        assert len(buffer) == len(expected)
        for number in expected:
            np.testing.assert_array_equal(buffer.rows[number % capacity], numbered(number, 1)[0])


@settings(max_examples=30, deadline=None)
@given(groups=some.integers(1, 9), copies=some.integers(1, 4), count=some.integers(0, 40))
def test_a_group_at_a_time_is_the_same(groups, copies, count):
    buffer, other = (ReplayBuffer(groups * copies, TYPE, seed=0) for _ in range(2))
    records = numbered(0, count * copies)
    buffer.add(records)
    for group in records.reshape(count, copies):
        other.rows[other.counts[PLACE] : other.counts[PLACE] + copies] = group
        written(other.counts, other.capacity, copies)
    np.testing.assert_array_equal(buffer.counts, other.counts)
    np.testing.assert_array_equal(buffer.rows, other.rows)


def write_and_draw(counts, rng, capacity, places):
    for i in range(len(places)):
        places[i] = 100 * counts[PLACE]
        written(counts, capacity, 1)
        places[i] += draw_place(counts, rng)


@pytest.mark.parametrize("translator", [learning_translator("replay"), cpu_translator("replay", double=False)])
def test_the_scalar_functions_compiled_and_plain(translator):
    outcomes = []
    for compiled in (False, True):
        arguments = np.zeros(3, np.int64), streams(5, 1)[0], 7, np.zeros(40, np.int64)
        loop = compile_loop(write_and_draw, arguments, translator, lambda: None) if compiled else write_and_draw
        loop(*arguments)
        outcomes.append([array.tolist() for array in (arguments[0], arguments[1], arguments[3])])
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [40 % 7, 7, 40]


def test_every_record_is_drawn_equally_often():
    buffer = ReplayBuffer(10, TYPE, seed=3)
    buffer.add(numbered(0, 25))
    counts = np.zeros(25)
    for _ in range(100):
        drawn = buffer.sample(1000)
        np.testing.assert_array_equal(drawn, numbered(0, 25)[drawn["action"][:, 0]])
        counts += np.bincount(drawn["action"][:, 0], minlength=25)
    assert not counts[:15].any()
    chi_squared = ((counts[15:] - 10_000) ** 2 / 10_000).sum()
    assert chi_squared < 27.9  # 9 degrees of freedom: exceeded once in 1000 seeds


def test_only_what_was_added_is_drawn():
    buffer = ReplayBuffer(1000, TYPE, seed=0)
    buffer.add(numbered(1, 3))
    assert set(buffer.sample(200)["action"][:, 0]) == {1, 2, 3}


def test_the_seed_decides():
    samples = []
    for seed in (1, 1, 2):
        buffer = ReplayBuffer(100, TYPE, seed=seed)
        buffer.add(numbered(0, 100))
        samples.append(buffer.sample(50).copy())
    np.testing.assert_array_equal(samples[0], samples[1])
    assert (samples[0] != samples[2]).any()


def test_a_sample_is_a_copy_that_the_next_one_overwrites():
    buffer = ReplayBuffer(4, TYPE, seed=0)
    buffer.add(numbered(0, 4))
    drawn = buffer.sample(3)
    drawn["reward"] = 99
    assert buffer.rows["reward"].max() == 3
    assert buffer.sample(3) is drawn
    assert buffer.sample(2) is not drawn


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("added", [0, 3, 17])
def test_going_on_from_a_saved_state(added, mapped, tmp_path):
    buffer = ReplayBuffer(8, TYPE, seed=1, path=tmp_path / "one" if mapped else None)
    buffer.add(numbered(0, added))
    if added:
        buffer.sample(5)
    state = buffer.state()
    assert state["rows"].shape == (min(added, 8),)
    other = ReplayBuffer(8, TYPE, seed=2, path=tmp_path / "two" if mapped else None)
    other.load_state(state)
    for one in (buffer, other):
        one.add(numbered(added, 2))
    np.testing.assert_array_equal(buffer.rows, other.rows)
    np.testing.assert_array_equal(buffer.sample(20), other.sample(20))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": np.zeros(5, TYPE)}, r"rows of the state are \(5,\)"),
        ({"rows": np.zeros(8, transition_type(3, Act(1, "int32", 3)))}, "for the same environment"),
        ({"counts": np.array([1, 8, 10])}, "counts 1, 8 and 10"),
        ({"counts": np.array([2, 7, 10])}, "not of a ring of 8"),
        ({"counts": np.zeros(4, np.int64)}, r"counts of the state is int64\(4,\)"),
        ({"rng": np.zeros(2, np.uint64)}, "all zeros"),
        ({"rng": np.zeros(2, np.float64)}, "rng of the state is float64"),
        ({"more": np.zeros(2)}, "has counts, rng; this has counts, more, rng"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(changes, says):
    buffer = ReplayBuffer(8, TYPE, seed=1)
    buffer.add(numbered(0, 10))
    before = buffer.state()
    with pytest.raises(ValueError, match=says):
        buffer.load_state({**before, **changes})
    after = buffer.state()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="capacity must be between 1"):
        ReplayBuffer(0, TYPE, seed=0)
    with pytest.raises(ValueError, match="records of numbers"):
        ReplayBuffer(3, np.dtype(object), seed=0, path=tmp_path / "file")
    buffer = ReplayBuffer(3, TYPE, seed=0)
    with pytest.raises(RuntimeError, match="empty; add transitions"):
        buffer.sample(1)
    with pytest.raises(ValueError, match="transitions must be records"):
        buffer.add(np.zeros((2, 2), TYPE))
    with pytest.raises(ValueError, match="transitions must be records"):
        buffer.add(np.zeros(2))
    buffer.add(numbered(0, 2))
    with pytest.raises(ValueError, match="at least 1 transition, not 0"):
        buffer.sample(0)


def test_a_mapped_buffer_is_the_same_and_its_file_has_the_rows(tmp_path):
    path = tmp_path / "ring"
    mapped, plain = ReplayBuffer(50, TYPE, seed=4, path=path), ReplayBuffer(50, TYPE, seed=4)
    for one in (mapped, plain):
        one.add(numbered(0, 70))
    np.testing.assert_array_equal(mapped.sample(30), plain.sample(30))
    np.testing.assert_array_equal(np.fromfile(path, TYPE, offset=4096), plain.rows)


def test_a_file_serves_one_buffer_at_a_time_and_then_the_next(tmp_path):
    path = tmp_path / "ring"
    first = ReplayBuffer(5, TYPE, seed=0, path=path)
    rows = first.rows
    with pytest.raises(ValueError, match="in use by another buffer"):
        ReplayBuffer(5, TYPE, seed=0, path=path)
    del first
    with pytest.raises(ValueError, match="in use by another buffer"):
        ReplayBuffer(5, TYPE, seed=0, path=path)
    rows["reward"] = 5
    del rows
    again = ReplayBuffer(5, TYPE, seed=0, path=path)
    assert len(again) == 0
    assert again.counts[[PLACE, FILLED, TOTAL]].tolist() == [0, 0, 0]


def test_foreign_and_damaged_files_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "ring"
    ReplayBuffer(5, TYPE, seed=0, path=path)
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="not the file of a buffer of 6 such transitions"):
        ReplayBuffer(6, TYPE, seed=0, path=path)
    with pytest.raises(ValueError, match="not the file of a buffer"):
        ReplayBuffer(5, transition_type(2, Act(1, "float32", 3)), seed=0, path=path)
    assert path.read_bytes() == whole
    for content, says in ((whole[:-1], "damaged"), (b"a letter", "not the file"), (b"x" + whole[1:], "not the file")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says):
            ReplayBuffer(5, TYPE, seed=0, path=path)
        assert path.read_bytes() == content


def test_a_disk_without_room_is_told_at_once(tmp_path):
    with pytest.raises(OSError, match="could not be given"):
        ReplayBuffer(2**31 - 1, np.dtype([("block", np.uint8, (2**20,))]), seed=0, path=tmp_path / "ring")
    assert (tmp_path / "ring").stat().st_size == 0
