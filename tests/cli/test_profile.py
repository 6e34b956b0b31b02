"""`velocirl profile train`: what it shows and writes, and that mistakes are one line."""

import json
import signal
import subprocess
import time

import pytest

from velocirl.bench.profiling import flame, lines, trials
from velocirl.bench.profiling.tree import PYTHON
from velocirl.cli.main import main
from velocirl.cli.profile import session as profile_session
from velocirl.cli.profile.command import claim
from velocirl.runs.directory import list_runs, open_run


@pytest.fixture(autouse=True)
def in_a_blink(monkeypatch, tmp_path):
    """Shorter looks, and the files where nothing else is."""
    for module, name, value in (
        (profile_session, "SECONDS", 0.3),
        (profile_session, "FLAME_SECONDS", 0.2),
        (trials, "SECONDS", 0.02),
        (lines, "ROUND", 10),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(profile_session, "profile_lines", lambda source: lines.profile_lines(source, seconds=0.05))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def read(directory):
    return json.loads((directory / "profile.json").read_text())


def test_a_profile_of_a_built_in_environment(small, capsys, tmp_path):
    main(["profile", "train", "CartPole-v1", *small, "--output", "out", "--lines"])
    shown = capsys.readouterr().out
    for part in (
        "training for 0 s",
        "├─ rollout",
        PYTHON,
        "MiB resident",
        "flame graph",
        "hottest 1",
        "what to try next",
    ):
        assert part in shown
    out = tmp_path / "here" / "out"
    assert {one.name for one in out.iterdir()} == {"profile.json", "flame.html", "calls.html", "memory.png"}
    found = read(out)
    training = found["training"]
    assert training["steps"] % 128 == 0
    assert training["steps"] == 128 * training["iterations"]
    assert training["steps_per_second"] == pytest.approx(training["steps"] / training["seconds"])
    tops = [node for node in found["tree"] if node["depth"] == 0]
    assert sum(node["seconds"] for node in tops) == pytest.approx(training["seconds"])
    assert sum(node["share"] for node in tops) == pytest.approx(1.0)
    assert [node["name"] for node in tops] == ["rollout", "estimate", "update", PYTHON]
    assert found["memory"]["lowest_bytes"] <= found["memory"]["peak_bytes"] == max(found["memory"]["course"]["bytes"])
    assert found["flame"]["samples"] > 0
    assert found["start_up"]["first_iteration"] > 0
    assert {one["name"] for one in found["lines"]["functions"]} == {"reset", "step", "observe"}
    assert found["settings"]["num_envs"] == 8
    assert found["interrupted"] is None
    assert found["command"].startswith("velocirl profile train CartPole-v1 ")
    assert list_runs() == []  # none was asked for


def test_a_users_file_in_json_for_so_many_steps(my_pole, small, capsys, tmp_path):
    main(["profile", "train", str(my_pole), *small, "--total-steps", "1280", "--no-flame", "--json"])
    found = json.loads(capsys.readouterr().out)
    (out,) = (tmp_path / "here").iterdir()
    assert out.name.startswith("profile-MyPole-v0-")
    assert found == read(out)
    assert (found["training"]["steps"], found["training"]["iterations"]) == (1280 - 128, 9)
    assert found["flame"] is None
    assert found["memory"]["growth"]["verdict"] == "too short to tell"
    assert all(any(letter.isdigit() for letter in one["measurement"]) for one in found["advice"])


def test_a_gymnasium_environment_and_quiet(small, capsys):
    main(
        [
            "profile",
            "train",
            "gym:CartPole-v1",
            *small,
            "--total-steps",
            "512",
            "--no-flame",
            "--quiet",
            "--output",
            "o",
        ]
    )
    assert capsys.readouterr().out == ""


def test_a_run_is_kept_where_it_is_asked_for(small, tmp_path):
    run_dir = tmp_path / "run"
    options = ["--total-steps", "1280", "--run-dir", str(run_dir), "--checkpoint-every", "640", "--no-flame", "--quiet"]
    main(["profile", "train", "CartPole-v1", *small, *options])
    run = open_run(run_dir)
    assert run.description.status == "finished"
    assert run.checkpoints().latest().state.document["steps"] == 1280


def test_without_what_draws_and_times_the_rest_still_works(small, capsys, monkeypatch):
    monkeypatch.setattr(profile_session, "flame_missing", lambda: flame.MISSING)
    monkeypatch.setattr(profile_session, "lines_missing", lambda: lines.MISSING)
    main(["profile", "train", "CartPole-v1", *small, "--total-steps", "512", "--lines", "--output", "out"])
    shown = capsys.readouterr().out
    assert shown.count('pip install "velocirl[profile]"') == 2
    assert "├─ rollout" in shown
    assert "what to try next" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to profile: velocirl profile train CartPole-v1"),
        (["trian", "CartPole-v1"], "there is no profile of 'trian': did you mean 'train'?"),
        (["train"], "say which environment is to be learnt"),
        (["train", "CartPol-v1"], "there is no environment 'CartPol-v1': did you mean 'CartPole-v1'?"),
        (["train", "CartPole-v1", "--line"], "there is no option --line: did you mean --lines?"),
        (["train", "CartPole-v1", "--no-flames"], "there is no option --no-flames: did you mean --no-flame?"),
        (["train", "CartPole-v1", "--num-env", "8"], "there is no option --num-env: did you mean --num-envs?"),
        (["train", "CartPole-v1", "--total-steps", "0"], "total_steps must be at least 1, got 0"),
        (["train", "CartPole-v1", "--seeds", "3"], "a profile is of one agent: leave out --seeds"),
        (["train", "CartPole-v1", "--checkpoint-every", "9"], "--checkpoint-every needs a run to save in"),
        (["train", "TicTacToe-v1", "--algorithm", "q-learning", "--runtime", "mpi"], "a profile is of one process"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing_behind(arguments, message, refused, tmp_path):
    assert message in refused("profile", *arguments)
    assert list((tmp_path / "here").iterdir()) == []


def test_nothing_is_written_over(refused, small, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert "is not an empty directory" in refused(
        "profile", "train", "CartPole-v1", *small, "--output", tmp_path / "full"
    )
    assert [one.name for one in (tmp_path / "full").iterdir()] == ["file"]
    first, second = (claim(None, "gym:ALE/Pong-v5")[0] for _ in range(2))
    assert first != second
    assert first.name.startswith("profile-gym-ALE-Pong-v5-")


def test_training_that_fails_leaves_no_directory(refused, small, monkeypatch, tmp_path):
    monkeypatch.setattr(
        profile_session, "watch_training", lambda *_: (_ for _ in ()).throw(ValueError("no such thing"))
    )
    assert "no such thing" in refused("profile", "train", "CartPole-v1", *small)
    assert list((tmp_path / "here").iterdir()) == []


def test_help_says_what_it_can_do(capsys):
    for arguments in (["--help"], ["train", "--help"], ["train", "CartPole-v1", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(["profile", *arguments])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "usage: velocirl profile train ENV [OPTIONS]" in shown
        assert "--lines" in shown
        assert "velocirl train --help" in " ".join(shown.split())


def test_an_interrupt_keeps_and_marks_what_there_is_and_torch_is_not_imported(command, small, tmp_path):
    script = "import sys; from velocirl.cli.main import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    arguments = ["profile", "train", "CartPole-v1", *small, "--total-steps", "1B", "--output", "out"]
    process = subprocess.Popen(
        [*command[:-1], script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    while "training for 1,000,000,000 steps" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "├─ rollout" in shown
    assert "interrupted during training" in shown
    assert shown.splitlines()[-1] == "False"
    found = read(tmp_path / "here" / "out")
    assert found["interrupted"] == "training"
    assert found["training"]["steps"] > 0
    assert found["training"]["interrupted"]
    assert found["flame"] is None
