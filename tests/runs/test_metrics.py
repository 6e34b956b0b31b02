"""The figures of a run: each row once, whatever happened between."""

import json
import math
import os
import stat
import tempfile
from pathlib import Path
from textwrap import dedent

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from velocirl.runs.metrics import DamagedMetricsError, MetricsLog, read_rows

STEP = "time/total_timesteps"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def append_steps(log, *steps):
    for step in steps:
        log.append({STEP: step, "rollout/ep_rew_mean": step / 3})


def steps(path):
    return [row[STEP] for row in read_rows(path)]


def test_rows_come_back_as_they_were_and_what_is_not_finite_as_null(path):
    with MetricsLog(path) as log:
        log.append({STEP: 1, "a": 0.1, "b": None, "c": math.nan, "d": -math.inf})
        log.append({STEP: np.int64(2), "a": np.float32(0.1), "c": np.float64("nan"), "e": True, "f": np.bool_(False)})
    rows = [
        {STEP: 1, "a": 0.1, "b": None, "c": None, "d": None},
        {STEP: 2, "a": float(np.float32(0.1)), "c": None, "e": 1, "f": 0},
    ]
    assert read_rows(path) == rows
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_a_row_is_seen_by_readers_at_once_and_in_one_write(path, monkeypatch):
    writes = []
    write = os.write

    def counted(handle, content):
        writes.append(content)
        return write(handle, content)

    monkeypatch.setattr("os.write", counted)
    log = MetricsLog(path)
    for count in range(1, 4):
        append_steps(log, count)
        assert len(read_rows(path)) == len(writes) == count
    log.close()


def test_an_opened_log_goes_on_where_it_was(path):
    for step in (1, 2):
        with MetricsLog(path) as log:
            append_steps(log, step)
    assert steps(path) == [1, 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("row", [{}, {"a": 1.0}, {STEP: 1.5}, {STEP: None}])
def test_a_row_without_a_step_is_refused(path, row):
    with MetricsLog(path) as log, pytest.raises(ValueError, match="must have its step"):
        log.append(row)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("figure", ["1", [1.0], np.ones(2), 1j])
def test_a_figure_that_is_no_number_is_named(path, figure):
    with MetricsLog(path) as log, pytest.raises(TypeError, match="'train/loss' must be a number"):
        log.append({STEP: 1, "train/loss": figure})
    assert path.read_bytes() == b""


def test_a_torn_last_line_is_left_out_at_any_length(path):
    with MetricsLog(path) as log:
        append_steps(log, 1, 2, 3)
    whole = path.read_bytes()
    second = len(b"\n".join(whole.split(b"\n")[:2])) + 1
    for length in range(second, len(whole)):
        path.write_bytes(whole[:length])
        assert steps(path) == [1, 2]
        with MetricsLog(path) as log:  # what is appended after it is a line of its own
            append_steps(log, 7)
        assert steps(path) == [1, 2, 7]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b'{"time/total_timesteps":1,"a":NaN}', "NaN is not JSON"),
        (b'{"time/total_timesteps":1,"a":"text"}', "numbers and nulls"),
        (b'{"time/total_timesteps":1,"a":true}', "numbers and nulls"),
        (b"[1]", "numbers and nulls"),
        (b'{"a":1}', "has no step"),
        (b'{"time/total_timesteps":1,"a":1,"a":2}', "twice"),
        (b"\xff\x00", "not a row"),
    ],
)
def test_any_other_damage_is_named_by_its_line_and_who_goes_on_leaves_it_out(path, line, reason):
    with MetricsLog(path) as log:
        append_steps(log, 1)
        path.write_bytes(path.read_bytes() + line + b"\n")
        append_steps(log, 3, 4)
        with pytest.raises(DamagedMetricsError, match=rf"metrics\.jsonl, line 2: .*{reason}"):
            read_rows(path)
        with pytest.warns(UserWarning, match=rf"metrics\.jsonl, line 2: .*{reason}.*; it is left out"):
            log.rewind(3)
    assert steps(path) == [1, 3]


def test_rewinding_drops_what_comes_after_a_step(path):
    with MetricsLog(path) as log:
        append_steps(log, 10, 20, 20, 30, 40)
        kept = b"".join(path.read_bytes().splitlines(keepends=True)[:3])
        log.rewind(20)
        assert path.read_bytes() == kept
        append_steps(log, 30)
    assert steps(path) == [10, 20, 20, 30]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@hypothesis.given(total=st.integers(1, 12), saved=st.integers(0, 12), torn=st.integers(0, 60), again=st.integers(0, 12))
def test_after_a_kill_and_a_resume_no_row_is_missing_and_none_is_there_twice(total, saved, torn, again):
    saved, again = min(saved, total), min(again, saved)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "metrics")
        with MetricsLog(path) as log:
            append_steps(log, *range(1, saved + 1))
            durable = path.stat().st_size
            append_steps(log, *range(saved + 1, total + 1))
        whole = path.read_bytes()
        path.write_bytes(whole[: max(durable, len(whole) - torn)])
        with MetricsLog(path) as log:
            log.rewind(again)  # the newest checkpoint may have been damaged: from an earlier one, then
            append_steps(log, *range(again + 1, total + 1))
        assert path.read_bytes() == whole


def test_syncing_waits_for_the_disk(path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    with MetricsLog(path) as log:
        append_steps(log, 1)
        assert synced == []
        log.sync()
    assert len(synced) == 1


def test_a_full_disk_keeps_the_rows_before_and_tears_none(path, tmp_path, run_script):
    script = tmp_path / "fill.py"
    script.write_text(
        dedent("""
        import resource, signal, sys
        from velocirl.runs.metrics import MetricsLog

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        log = MetricsLog(sys.argv[1])
        written, messages = 0, []
        for step in range(100):
            try:
                log.append({"time/total_timesteps": step, "a": 1 / 3})
                written += 1
            except OSError as error:
                messages.append(str(error))
        print(written, messages[-1])
        """)
    )
    written, message = run_script(script, str(path)).split(maxsplit=1)
    assert "could not be added" in message
    assert "the rows before it are kept" in message
    assert steps(path) == list(range(int(written)))
    assert path.read_bytes().endswith(b"\n")
    assert 900 < path.stat().st_size <= 1000
