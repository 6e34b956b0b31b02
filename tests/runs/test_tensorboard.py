"""TensorBoard events, read back by TensorBoard itself."""

import importlib.util
import stat
from textwrap import dedent

import numpy as np
import pytest

from velocirl.runs.tensorboard import EventWriter, available

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(directory):
    reader = EventAccumulator(str(directory))
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in sorted(reader.Tags()["scalars"])
    }


def test_figures_come_back_with_their_steps(tmp_path):
    with EventWriter(tmp_path / "events") as writer:
        writer.add(10, {"rollout/ep_rew_mean": 1.5, "train/loss": None})
        writer.add(2**40, {"rollout/ep_rew_mean": np.float32(0.1), "train/loss": -3})
    assert scalars(tmp_path / "events") == {
        "rollout/ep_rew_mean": [(10, 1.5), (2**40, float(np.float32(0.1)))],
        "train/loss": [(2**40, -3.0)],
    }


def test_flushed_figures_are_seen_while_the_file_is_open(tmp_path):
    with EventWriter(tmp_path) as writer:
        writer.add(1, {"a": 1.0})
        writer.flush()
        assert scalars(tmp_path) == {"a": [(1, 1.0)]}


def test_a_resumed_run_shows_each_step_once(tmp_path):
    with EventWriter(tmp_path) as writer:
        for step in (10, 20, 30, 40):
            writer.add(step, {"a": step})
    with EventWriter(tmp_path, resumed_at=20) as writer:
        for step in (30, 40, 50):
            writer.add(step, {"a": step + 0.5})
    assert scalars(tmp_path) == {"a": [(10, 10.0), (20, 20.0), (30, 30.5), (40, 40.5), (50, 50.5)]}


def test_event_files_are_private(tmp_path):
    with EventWriter(tmp_path / "events") as writer:
        assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(writer.path.parent.stat().st_mode) == 0o700


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    assert available()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not available()
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        EventWriter(tmp_path / "events")
    assert not (tmp_path / "events").exists()


def test_neither_torch_nor_tensorflow_is_imported(tmp_path, run_script):
    script = tmp_path / "write.py"
    script.write_text(
        dedent("""
        import sys
        from velocirl.runs.tensorboard import EventWriter

        assert "tensorboard" not in sys.modules
        with EventWriter(sys.argv[1]) as writer:
            writer.add(1, {"a": 1.0})
        print(sorted({"torch", "tensorflow"} & sys.modules.keys()))
        """)
    )
    assert run_script(script, str(tmp_path / "events")) == "[]\n"
