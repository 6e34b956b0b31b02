"""The commands with an algorithm that learns from a memory: the memory survives, and nobody shares it by mistake."""

import gc
import json
import os
import random
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from same_runs import timeless

from velocirl import DQN
from velocirl.buffers.replay_storage import allocate_rows
from velocirl.cli.main import main
from velocirl.cli.resume import buffer_file_of
from velocirl.cli.train.seeds import _side_by_side
from velocirl.runs import memory_files
from velocirl.runs.directory import open_run
from velocirl.runs.groups import open_group
from velocirl.runs.metrics import STEP

SMALL = ["--algorithm", "dqn", "--num-envs", "8", "--learning-starts", "100", "--train-every", "16", "--batch-size",
         "16", "--hidden", "16", "16", "--buffer-size", "20000", "--threads", "1", "--seed", "3"]  # fmt: skip
# The memory is in segments, however small it is.
COMMAND = [
    sys.executable, "-W", "error", "-c",
    "from velocirl.runs import memory_files; memory_files.LARGE = 1;"
    " from velocirl.cli.main import main; main()",
]  # fmt: skip


@pytest.fixture
def dqn(tmp_path, monkeypatch):
    """Train in a new directory and give back the run."""
    monkeypatch.setattr(memory_files, "LARGE", 1)

    def dqn(*arguments, name="run", steps=4096):
        words = ["train", "CartPole-v1", *SMALL, "--total-steps", str(steps), *map(str, arguments)]
        main([*words, "--run-dir", str(tmp_path / name), "--quiet"])
        return open_run(tmp_path / name)

    return dqn


def assert_same(one, other):
    one, other = (run.checkpoints().latest().state for run in (one, other))
    assert one.document == other.document
    for key, array in one.arrays.items():
        for field in array.dtype.names or (...,):
            assert array[field].tobytes() == other.arrays[key][field].tobytes(), f"{key} {field}"


def test_a_run_keeps_its_memory_beside_its_checkpoints(dqn, capsys):
    run = dqn("--checkpoint-every", "1000")
    names = sorted(path.name for path in (run.path / "checkpoints" / "memory").iterdir())
    assert [name[16:31] for name in names] == [f"{1024 * k:015d}" for k in (1, 2, 3, 4)]
    assert [row[STEP] for row in run.rows()] == [1024, 2048, 3072, 4096]
    assert run.rows()[-1]["train/n_updates"] == 4096 // 16 - 100 // 16
    main(["evaluate", str(run.path), "--latest", "--episodes", "4", "--json"])
    assert json.loads(capsys.readouterr().out)["algorithm"] == "dqn"
    for name in names:  # who only acts needs none of them
        (run.path / "checkpoints" / "memory" / name).unlink()
    main(["evaluate", str(run.path), "--latest", "--episodes", "4"])
    assert "of step 4096: CartPole-v1, dqn" in capsys.readouterr().out


def test_more_steps_are_those_of_a_run_that_had_them_from_the_beginning(dqn):
    run = dqn("--checkpoint-every", "1000", steps=2048)
    main(["resume", str(run.path), "--total-steps", "3072", "--quiet"])
    assert open_run(run.path).checkpoints().latest().step == 3072


def test_a_damaged_memory_sends_back_to_the_checkpoint_before(dqn, capsys):
    run, whole = dqn("--checkpoint-every", "1000"), dqn("--checkpoint-every", "1000", name="whole")
    newest = max((run.path / "checkpoints" / "memory").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    run.set_status("running")  # as a kill leaves it
    main(["resume", str(run.path), "--quiet"])
    complaint = capsys.readouterr().err
    assert f"{newest.name} is damaged" in complaint
    assert "set aside as step_000000004096.safetensors.damaged; going on from step 3072" in complaint
    assert_same(open_run(run.path), whole)
    assert timeless(open_run(run.path).rows()) == timeless(whole.rows())


def test_without_any_memory_left_it_says_so(dqn, refused):
    run = dqn("--checkpoint-every", "1000")
    for path in (run.path / "checkpoints" / "memory").iterdir():
        path.unlink()
    run.set_status("running")
    assert "there is no usable checkpoint" in refused("resume", run.path)


def test_a_mapped_memory_changes_nothing(dqn, tmp_path):
    mapped, plain = dqn("--buffer-file", tmp_path / "ring", name="mapped"), dqn(name="plain")
    one, other = (run.checkpoints().latest().state.arrays for run in (mapped, plain))
    np.testing.assert_array_equal(one["network.parameters"], other["network.parameters"])
    np.testing.assert_array_equal(one["memory.rows"], other["memory.rows"])
    assert (tmp_path / "ring").stat().st_size > 20_000 * 40


def test_the_file_of_a_memory_is_opened_where_somebody_asked_for_it(dqn, tmp_path, refused, data_home):
    """For training, and so for resuming; not because a model names it, nor a run that somebody has sent."""
    ring = tmp_path / "ring"
    run = dqn("--buffer-file", ring, steps=1024)
    gc.collect()  # the buffer of that training, which holds the file as long as it is there
    main(["resume", str(run.path), "--total-steps", "2048", "--quiet"])
    ring.unlink()
    model = next(iter(run.checkpoints().steps().values()))
    main(["evaluate", str(run.path), "--episodes", "1"])
    main(["evaluate", str(model), "--episodes", "1"])
    with pytest.raises(ValueError, match=rf"wants its memory in the file {ring}: give buffer_file='{ring}'"):
        DQN.load(model)
    assert DQN.load(model, memory=False).config.buffer_file is None
    assert DQN.load(model, buffer_file=None).config.buffer_file is None
    (data_home / "environment_files.jsonl").unlink()  # as for a run that comes from somewhere else
    more = ["resume", run.path, "--total-steps", 3072]
    assert f"{run.path} wants its memory in {ring}, a file elsewhere that you have not named before" in refused(*more)
    assert not ring.exists()
    main([*map(str, more), "--quiet", "--trust"])
    assert ring.stat().st_size > 20_000 * 40
    assert DQN.load(model, buffer_file=str(tmp_path / "other")).config.buffer_file == str(tmp_path / "other")
    assert f"wants the memory in {ring}: if it may be made there, add --buffer-file {ring}" in refused(
        "train", "--config", run.path / "config.toml"
    )


def test_the_file_of_a_memory_that_lies_with_its_run_needs_no_word(dqn, tmp_path, data_home):
    run = dqn("--buffer-file", tmp_path / "ring", steps=1024)
    (data_home / "environment_files.jsonl").unlink()
    within, config = run.path / "ring", {"buffer_file": str(run.path / "ring")}
    assert buffer_file_of(run, config, trust=False) == {"buffer_file": str(within)}
    within.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{tmp_path / 'elsewhere'}, a file elsewhere"):
        buffer_file_of(run, config, trust=False)


def test_a_file_that_is_not_a_memorys_own_is_left_alone(dqn, tmp_path, refused):
    train = ["train", "CartPole-v1", *SMALL, "--total-steps", "1000", "--quiet", "--buffer-file"]
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    assert "is not the file of a buffer" in refused(*train, notes)
    assert notes.read_text() == "mine"
    assert str(tmp_path / "no" / "ring") in refused(*train, tmp_path / "no" / "ring")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a plain file" in refused(*train, tmp_path / "pipe")
    held = allocate_rows(10, np.dtype([("x", np.float32)]), tmp_path / "held")
    assert "is in use by another buffer" in refused(*train, tmp_path / "held")
    assert len(held) == 10


@pytest.mark.usefixtures("no_pictures_in_processes")
def test_every_seed_has_a_memory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mapped = ["--seeds", "2", "--buffer-file", "my.ring", "--run-dir", str(tmp_path / "group")]
    main(["train", "CartPole-v1", *SMALL, "--total-steps", "2048", *mapped, "--quiet"])
    assert sorted(path.name for path in tmp_path.glob("my*")) == ["my-3.ring", "my-4.ring"]
    group = open_group(tmp_path / "group")
    assert [run.description.config["buffer_file"] for run in map(group.run, (3, 4))] == ["my-3.ring", "my-4.ring"]
    assert [one.status for one in group.results()] == ["finished", "finished"]


def test_seeds_take_turns_on_a_gpu():
    assert _side_by_side({"device": "cuda"}, 1) == (1, "one after the other on the GPU")
    at_once, said = _side_by_side({"device": "cpu"}, 1)
    assert said == f"{at_once} at a time"


@pytest.mark.parametrize(
    ("environment", "algorithm", "others"),
    [("Pendulum-v1", "dqn", "SAC, TD3 or PPO"), ("CartPole-v1", "sac", "PPO"), ("CartPole-v1", "td3", "PPO")],
)
def test_where_an_algorithm_does_not_fit_those_that_do_are_named(environment, algorithm, others, refused):
    said = refused("train", environment, "--algorithm", algorithm)
    assert environment in said
    assert others in said


def killed(arguments, seconds):
    """Run a command that prints rows, kill it so long after its first row; the last step that it told of, and rest."""
    process = subprocess.Popen([*COMMAND, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    told = 0
    deadline = None
    for line in process.stdout:
        told = json.loads(line).get(STEP, told)
        deadline = deadline or (time.monotonic() + seconds if told else None)
        if deadline is not None and time.monotonic() >= deadline:
            break
    process.kill()
    rest, _ = process.communicate(timeout=60)
    for line in rest.splitlines():
        if line.endswith("}"):
            told = json.loads(line).get(STEP, told)
    return told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again_it_ends_as_if_it_never_was(dqn, tmp_path):
    every, total = 4000, 163_840
    options = ["--checkpoint-every", str(every), "--priority", "proportional", "--n-step", "3"]
    whole = dqn(*options, name="whole", steps=total)
    where, moments = tmp_path / "killed", random.Random(0)
    begin = ["train", "CartPole-v1", *SMALL, *options, "--total-steps", str(total), "--run-dir", str(where)]
    told = kills = reached = 0
    while told < total:
        told = killed(["resume", str(where)] if reached else begin, moments.random() * 0.1)
        reached = max(open_run(where).checkpoints().steps(), default=0)
        assert reached >= told // every * every
        if not reached:
            shutil.rmtree(where)
        kills += 1
        assert kills < 100
    assert kills >= 5
    main(["resume", str(where), "--quiet"])
    run = open_run(where)
    assert run.description.status == "finished"
    assert_same(run, whole)
    assert timeless(run.rows()) == timeless(whole.rows())
