"""Checkpoints: whatever happens, there is one to go on from, and nothing damaged is used."""

import os
import random
import signal
import stat
import subprocess
import sys
import time
from textwrap import dedent

import numpy as np
import pytest

from velocirl.runs.checkpoints import Checkpoints, NoCheckpointError
from velocirl.runs.state_file import DamagedStateError


def arrays(step):
    return {"parameters": np.full(100, step, np.float32)}


def save_steps(checkpoints, *steps):
    return [checkpoints.save(step, arrays(step), {"step": step}) for step in steps]


def damage(path, position=-1):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run" / "checkpoints")


def test_the_latest_comes_back(checkpoints):
    paths = save_steps(checkpoints, 5, 123456)
    assert paths[1].name == "step_000000123456.safetensors"
    latest = checkpoints.latest()
    assert (latest.path, latest.step, latest.problems) == (paths[1], 123456, ())
    assert latest.state.document == {"step": 123456}
    np.testing.assert_array_equal(latest.state.arrays["parameters"], np.full(100, 123456, np.float32))


def test_the_newest_few_stay_and_the_best_one_too(checkpoints):
    save_steps(checkpoints, 1)
    checkpoints.save_best(arrays(1), {"mean": 9.0})
    save_steps(checkpoints, 2, 10, 300, 10**12, 10**13)
    assert list(checkpoints.steps()) == [300, 10**12, 10**13]  # by number, not by name
    assert len(list(checkpoints.directory.iterdir())) == 4
    assert checkpoints.best().document == {"mean": 9.0}
    checkpoints.save_best(arrays(2), {"mean": 10.0})
    assert checkpoints.best().document == {"mean": 10.0}


def test_only_one_may_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save_steps(checkpoints, 1, 2, 3, 3)
    assert list(checkpoints.steps()) == [3]
    with pytest.raises(ValueError, match="keep must be at least 1"):
        Checkpoints(tmp_path, keep=0)


def test_an_old_one_goes_only_when_the_new_one_is_on_the_disk(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save_steps(checkpoints, 1)
    seen = []
    sync = os.fsync

    def fsync(handle):
        seen.append(list(checkpoints.steps()))
        sync(handle)

    monkeypatch.setattr("os.fsync", fsync)
    save_steps(checkpoints, 2)
    assert seen == [[1], [1, 2]]  # the data; then the name, in the directory
    assert list(checkpoints.steps()) == [2]


def test_a_failed_save_removes_nothing(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save_steps(checkpoints, 1)

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left on device"):
        save_steps(checkpoints, 2)
    assert checkpoints.latest().step == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("position", [0, 8, 60, -1])
def test_a_damaged_one_is_set_aside_and_the_one_before_is_used(checkpoints, position):
    _, second, third = save_steps(checkpoints, 1, 2, 3)
    damage(third, position)
    second.write_bytes(second.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="set aside as step_.*damaged") as warned:
        latest = checkpoints.latest()
    assert latest.step == 1
    assert [str(warning.message) for warning in warned] == list(latest.problems)
    assert [path.name in problem for path, problem in zip([third, second], latest.problems, strict=True)] == [True] * 2
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == [
        "step_000000000001.safetensors",
        "step_000000000002.safetensors.damaged",
        "step_000000000003.safetensors.damaged",
    ]
    assert checkpoints.latest().problems == ()
    save_steps(checkpoints, 2, 3)  # the steps that were lost are gone through again
    assert checkpoints.latest().step == 3


def test_where_nothing_can_be_renamed_a_damaged_one_is_passed_over(checkpoints, monkeypatch):
    paths = save_steps(checkpoints, 1, 2)
    damage(paths[1])

    def refuse(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.warns(UserWarning, match="checksum"):
        assert checkpoints.latest().step == 1


def test_with_none_left_it_says_so_and_why(checkpoints):
    with pytest.raises(NoCheckpointError, match=r"no usable checkpoint in .*checkpoints"):
        checkpoints.latest()
    assert not checkpoints.directory.exists()
    damage(save_steps(checkpoints, 7)[0])
    said = r"step_000000000007\.safetensors is damaged: its checksum"
    with pytest.warns(UserWarning, match=said), pytest.raises(NoCheckpointError, match=said):
        checkpoints.latest()


def test_a_missing_or_damaged_best_one_is_never_replaced_by_another(checkpoints):
    save_steps(checkpoints, 1)
    with pytest.raises(NoCheckpointError, match="no best state"):
        checkpoints.best()
    damage(checkpoints.save_best(arrays(1), {}))
    with pytest.raises(DamagedStateError, match="best"):
        checkpoints.best()


def test_a_file_that_a_going_run_has_just_removed_is_no_fault(checkpoints, monkeypatch):
    paths = save_steps(checkpoints, 1, 2)
    steps = Checkpoints.steps

    def listed_then_removed(self):
        found = steps(self)
        if paths[1].exists():
            paths[1].unlink()
            save_steps(checkpoints, 3)
        return found

    monkeypatch.setattr(Checkpoints, "steps", listed_then_removed)
    assert checkpoints.latest().step == 3


def test_steps_only_go_forward(checkpoints):
    save_steps(checkpoints, 5)
    with pytest.raises(ValueError, match="step 5, later than 4"):
        save_steps(checkpoints, 4)
    with pytest.raises(ValueError, match="count from 0"):
        save_steps(checkpoints, -1)
    assert list(checkpoints.steps()) == [5]


def test_files_and_directory_are_private(checkpoints):
    path = save_steps(checkpoints, 1)[0]
    best = checkpoints.save_best(arrays(1), {})
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, best)] == [0o600, 0o600]
    assert stat.S_IMODE(checkpoints.directory.stat().st_mode) == 0o700


def test_other_files_are_left_alone(checkpoints):
    save_steps(checkpoints, 1)
    names = ["step_1.safetensors", "step_000000000009.safetensors.damaged", "notes.txt"]
    for name in names:
        (checkpoints.directory / name).touch()
    save_steps(checkpoints, 2, 3, 4, 5)
    assert list(checkpoints.steps()) == [3, 4, 5]
    assert all((checkpoints.directory / name).exists() for name in names)


SAVING = """
    import os, sys, time
    import numpy as np
    from velocirl.runs.checkpoints import Checkpoints, NoCheckpointError

    def pause(handle):
        print("pausing", flush=True)
        time.sleep(60)

    checkpoints = Checkpoints(sys.argv[1], keep=2)
    try:
        step = checkpoints.latest().step
    except NoCheckpointError:
        step = 0
    print(step, flush=True)
    while True:
        step += 1
        if step == int(sys.argv[2]):
            os.fsync = pause
        checkpoints.save(step, {"parameters": np.full(300_000, step, np.float64)}, {"step": step})
        print(step, flush=True)
"""


@pytest.fixture
def start_saving(tmp_path):
    script = tmp_path / "saving.py"
    script.write_text(dedent(SAVING))
    started = []

    def start(directory, pause_at=0):
        command = [sys.executable, "-W", "error", script, directory, str(pause_at)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_kill_at_any_moment_leaves_a_checkpoint_to_go_on_from(tmp_path, start_saving):
    directory, moments, saved = tmp_path / "checkpoints", random.Random(0), 0
    for _ in range(5):
        process = start_saving(directory)
        assert int(process.stdout.readline()) >= saved  # what was said to be saved is there, and is whole
        for _ in range(moments.randint(1, 5)):
            saved = int(process.stdout.readline())
        time.sleep(moments.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        latest = Checkpoints(directory, keep=2).latest()
        assert latest.step >= saved
        assert latest.state.document == {"step": latest.step}
        assert np.all(latest.state.arrays["parameters"] == latest.step)
        assert len(list(directory.iterdir())) <= 3  # two, and one not yet removed; nothing unfinished
    assert saved >= 5


def test_what_a_kill_in_the_middle_of_a_save_leaves_is_cleaned_up(tmp_path, start_saving):
    directory = tmp_path / "checkpoints"
    process = start_saving(directory, pause_at=3)
    while process.stdout.readline() != "pausing\n":
        pass
    assert len(list(Checkpoints(directory).directory.glob(".*.unfinished"))) == 1  # still being written
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(list(directory.glob(".*.unfinished"))) == 1
    assert Checkpoints(directory).latest().step == 2
    assert len(list(directory.iterdir())) == 2
