"""Checkpoints of an agent with a large memory: small, exact, and safe whatever happens."""

import random
import signal
import subprocess
import sys
import time
import warnings
from textwrap import dedent

import numpy as np
import pytest

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import ReplayBuffer
from velocirl.runs import memory_files
from velocirl.runs.checkpoints import Checkpoints, NoCheckpointError
from velocirl.runs.memory_files import forget, read_checkpoint
from velocirl.runs.state_file import DamagedStateError, read_state

TYPE = transition_type(3, Act(1, "int32", 2))
KINDS = [ReplayBuffer, PrioritisedReplayBuffer, RankReplayBuffer]


def fill(buffer, count):
    records = np.zeros(count, TYPE)
    records["reward"] = np.arange(count) + int(buffer.counts[2])
    records["observation"] = buffer.rng[0] % np.uint64(1000)  # something that another buffer does not have
    buffer.add(records)


def arrays(buffer):
    memory = {f"memory.{name}": array for name, array in buffer.bookkeeping().items()}
    return {"network.parameters": np.arange(4.0), **memory, "memory.rows": buffer.rows[: len(buffer)]}


def under(state):
    return {name.removeprefix("memory."): array for name, array in state.arrays.items() if name.startswith("memory.")}


def segments(checkpoints):
    return sorted(path.name for path in (checkpoints.directory / "memory").iterdir())


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_files, "LARGE", 1)
    return Checkpoints(tmp_path / "checkpoints")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("resumed", [False, True])
def test_every_checkpoint_that_is_kept_comes_back_exactly(checkpoints, kind, resumed):
    buffer, kept = kind(100, TYPE, 5), {}
    for step in range(1, 9):
        fill(buffer, 17)
        buffer.sample(4, *([] if kind is ReplayBuffer else [0.5]))
        if resumed:  # by another process, which knows only what is on the disk
            checkpoints = Checkpoints(checkpoints.directory)
        path = checkpoints.save(step, arrays(buffer), {"step": step})
        kept[path] = buffer.state()
    assert list(checkpoints.steps()) == [6, 7, 8]
    for path in checkpoints.steps().values():
        state = read_checkpoint(path)
        other = kind(100, TYPE, 77)
        other.load_state(under(state))
        for name, array in other.state().items():
            np.testing.assert_array_equal(array, kept[path][name])
    assert checkpoints.latest().state.document == {"step": 8}
    assert len(segments(checkpoints)) == 8  # those of rows 0 to 16 too: the oldest that stays needs a part of them


def test_a_checkpoint_adds_what_is_new(checkpoints):
    buffer = ReplayBuffer(50_000, TYPE, 5)
    fill(buffer, 40_000)
    first = checkpoints.save(1, arrays(buffer), {})
    before = segments(checkpoints)
    fill(buffer, 100)
    second = checkpoints.save(2, arrays(buffer), {})
    (new,) = set(segments(checkpoints)) - set(before)
    assert (checkpoints.directory / "memory" / new).stat().st_size == 4096 + 100 * TYPE.itemsize
    assert first.stat().st_size < 3000
    assert second.stat().st_size < 3000


def test_a_small_memory_stays_in_the_file(tmp_path):
    buffer, checkpoints = ReplayBuffer(1000, TYPE, 5), Checkpoints(tmp_path)
    fill(buffer, 300)
    path = checkpoints.save(1, arrays(buffer), {})
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    np.testing.assert_array_equal(read_state(path).arrays["memory.rows"], buffer.rows[:300])


def test_a_memory_that_grows_large_moves_out_of_the_file(tmp_path, monkeypatch):
    buffer, checkpoints = ReplayBuffer(1000, TYPE, 5), Checkpoints(tmp_path)
    monkeypatch.setattr(memory_files, "LARGE", 200 * TYPE.itemsize)
    for step in range(1, 6):
        fill(buffer, 90)
        checkpoints.save(step, arrays(buffer), {})
        np.testing.assert_array_equal(checkpoints.latest().state.arrays["memory.rows"], buffer.rows[: 90 * step])
    assert len(segments(checkpoints)) == 3


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_harmed_segment_sends_back_to_the_checkpoint_before(checkpoints, harm):
    buffer, counts = ReplayBuffer(1000, TYPE, 5), []
    for step in (1, 2, 3):
        fill(buffer, 50)
        counts.append(buffer.counts.copy())
        checkpoints.save(step, arrays(buffer), {"step": step})
    path = checkpoints.directory / "memory" / segments(checkpoints)[-1]
    path.write_bytes(path.read_bytes()[:-1] + b"x") if harm == "damaged" else path.unlink()
    with pytest.warns(UserWarning, match=rf"cannot be used with its memory: .*{path.name} is {harm}.*set aside"):
        latest = checkpoints.latest()
    assert (latest.step, len(latest.problems)) == (2, 1)
    np.testing.assert_array_equal(latest.state.arrays["memory.rows"], buffer.rows[:100])
    buffer.counts[:] = counts[1]  # training goes on from there, another way
    fill(buffer, 30)
    checkpoints = Checkpoints(checkpoints.directory)
    checkpoints.save(4, arrays(buffer), {})
    np.testing.assert_array_equal(checkpoints.latest().state.arrays["memory.rows"], buffer.rows[:130])
    assert len(segments(checkpoints)) == 3  # that which nobody can use is gone


def test_where_all_need_what_is_harmed_it_says_so_and_the_policy_is_still_there(checkpoints):
    buffer = ReplayBuffer(1000, TYPE, 5)
    for step in (1, 2):
        fill(buffer, 50)
        path = checkpoints.save(step, arrays(buffer), {"step": step})
    (checkpoints.directory / "memory" / segments(checkpoints)[0]).unlink()
    without = checkpoints.latest(memory=False)
    assert (without.step, len(without.state.arrays["memory.rows"])) == (2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NoCheckpointError, match=r"(?s)no usable checkpoint.*is missing.*is missing"):
            checkpoints.latest()
    np.testing.assert_array_equal(
        read_checkpoint(f"{path}.damaged", memory=False).arrays["network.parameters"], np.arange(4.0)
    )


@pytest.mark.parametrize("listed", [[], [[0, 50, "a" * 64]], "x", [[0, 50, "../../../etc/passwd"]], [[0, 49, 7]]])
def test_a_list_that_was_tampered_with_is_refused(checkpoints, listed):
    buffer = ReplayBuffer(1000, TYPE, 5)
    fill(buffer, 50)
    path = checkpoints.save(1, arrays(buffer), {})
    state = read_state(path)
    memory_files.write_state(path, state.arrays, {**state.document, "memory_segments": listed})
    with pytest.raises(DamagedStateError, match="cannot be used with its memory"):
        read_checkpoint(path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_memory_is_as_a_new_one(kind, tmp_path):
    buffer, other = kind(100, TYPE, 5), kind(100, TYPE, 6)
    fill(buffer, 130)
    path = Checkpoints(tmp_path).save_best(arrays(buffer), {})
    other.load_state(under(read_checkpoint(path)))
    assert len(other) == 0
    fill(other, 60)
    drawn = other.sample(30, *([] if kind is ReplayBuffer else [0.5]))
    assert set((drawn if kind is ReplayBuffer else drawn[0])["reward"]) <= set(range(60))
    assert forget({"network.parameters": np.ones(2)}).keys() == {"network.parameters"}


def test_a_full_disk_leaves_earlier_checkpoints(checkpoints, monkeypatch):
    buffer = ReplayBuffer(1000, TYPE, 5)
    fill(buffer, 50)
    checkpoints.save(1, arrays(buffer), {"step": 1})
    fill(buffer, 50)
    for place in ("velocirl.buffers.segments.os.fsync", "velocirl.runs.memory_files.write_state"):

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(OSError, match="No space left"):
                checkpoints.save(2, arrays(buffer), {"step": 2})
        latest = Checkpoints(checkpoints.directory).latest()
        np.testing.assert_array_equal(latest.state.arrays["memory.rows"], buffer.rows[:50])
    checkpoints.save(2, arrays(buffer), {"step": 2})
    np.testing.assert_array_equal(checkpoints.latest().state.arrays["memory.rows"], buffer.rows[:100])


SAVING = """
    import sys
    import numpy as np
    from velocirl.buffers.records import Act, transition_type
    from velocirl.buffers.replay import ReplayBuffer
    from velocirl.runs import memory_files
    from velocirl.runs.checkpoints import Checkpoints, NoCheckpointError

    memory_files.LARGE = 1
    kind = transition_type(3, Act(1, "int32", 2))
    buffer = ReplayBuffer(5000, kind, 0)
    checkpoints = Checkpoints(sys.argv[1], keep=2)
    try:
        latest = checkpoints.latest()
    except NoCheckpointError:
        step = 0
    else:
        step = latest.step
        memory = {name[7:]: array for name, array in latest.state.arrays.items() if name.startswith("memory.")}
        buffer.load_state(memory)
        total = int(buffer.counts[2])
        assert total == step * 700
        expected = np.arange(total - len(buffer), total)
        assert sorted(buffer.rows["reward"][: len(buffer)].tolist()) == expected.tolist()
    print(step, flush=True)
    while True:
        step += 1
        rows = np.zeros(700, kind)
        rows["reward"] = np.arange((step - 1) * 700, step * 700)
        buffer.add(rows)
        arrays = {"memory.rows": buffer.rows[: len(buffer)], "memory.counts": buffer.counts, "memory.rng": buffer.rng}
        checkpoints.save(step, arrays, {"step": step})
        print(step, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_memory_to_go_on_from(tmp_path):
    script, directory = tmp_path / "saving.py", tmp_path / "checkpoints"
    script.write_text(dedent(SAVING))
    moments, saved = random.Random(0), 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", script, directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = process.stdout.readline()
            assert said, process.stderr.read()
            assert int(said) >= saved  # what was said to be saved is there, and is whole
            for _ in range(moments.randint(1, 5)):
                saved = int(process.stdout.readline())
            time.sleep(moments.random() * 0.02)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    latest = Checkpoints(directory, keep=2).latest()
    assert latest.step >= saved >= 6
    assert latest.problems == ()
