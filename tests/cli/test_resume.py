"""`velocirl resume`: as if the run had never stopped, whatever stopped it."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import warnings

import pytest
from same_runs import assert_same, timeless

from velocirl.cli.main import main
from velocirl.runs.directory import list_runs, open_run
from velocirl.runs.metrics import STEP

LONG = ["--total-steps", "65536", "--checkpoint-every", "5000"]  # 512 iterations


def interrupt(command, arguments, sent):
    """Run a command that prints rows, send it a signal after a hundred of them, and give back how it ended."""
    process = subprocess.Popen(
        [*command, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for number, _ in enumerate(process.stdout):
        if number == 100:
            process.send_signal(sent)
            break
    rest, complaints = process.communicate(timeout=60)
    return process.returncode, rest.splitlines(), complaints


@pytest.mark.parametrize(
    ("sent", "code", "status"),
    [(signal.SIGKILL, -9, "interrupted"), (signal.SIGTERM, 143, "stopped"), (signal.SIGINT, 130, "stopped")],
)
def test_a_run_that_a_signal_ended_goes_on_bit_for_bit(sent, code, status, command, small, train, tmp_path):
    whole = train(*LONG, name="whole", steps=None)
    where = tmp_path / "stopped"
    ended, lines, complaints = interrupt(
        command, ["train", "CartPole-v1", *small, *LONG, "--run-dir", str(where)], sent
    )
    assert (ended, complaints) == (code, "")
    (summary,) = [run for run in list_runs() if run.path == where]
    assert summary.status == status
    run = open_run(where)
    (*_, reached) = run.checkpoints().steps()
    assert 0 < reached < 65536
    if code > 0:
        assert json.loads(lines[-1]).items() >= {"event": "end", "status": "stopped", "outcome": "stopped"}.items()
        assert json.loads(lines[-1])["steps"] == reached
    main(["resume", str(where), "--quiet"])
    run = open_run(where)
    assert run.description.status == "finished"
    assert_same(run, whole)
    assert [row[STEP] for row in run.rows()] == [row[STEP] for row in whole.rows()] == list(range(128, 65537, 128))
    assert timeless(run.rows()) == timeless(whole.rows())


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(train, capsys):
    run, whole = train("--checkpoint-every", "256"), train("--checkpoint-every", "256", name="whole")
    shutil.rmtree(run.path / "checkpoints")
    run.set_status("running")  # as a kill leaves it
    main(["resume", str(run.path)])
    assert capsys.readouterr().err == "run ended before its first checkpoint: it begins anew\n"
    assert_same(open_run(run.path), whole)
    assert timeless(run.rows()) == timeless(whole.rows())


def test_a_terminal_that_is_closed_saves_the_run_and_ends_it(small, tmp_path):
    where, script = tmp_path / "run", "from velocirl.cli.main import main; main()"
    arguments = ["train", "CartPole-v1", *small, "--total-steps", "1000000000", "--run-dir", str(where)]
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a shell may have started the tests without
        os.execve(sys.executable, [sys.executable, "-c", script, *arguments], {**os.environ, "TERM": "xterm"})
    seen = b""
    while b" left" not in seen:  # the panel is there
        seen += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    run = open_run(where)
    assert run.description.status == "stopped"
    assert run.checkpoints().latest().step % 128 == 0


def test_a_line_of_figures_that_is_torn_keeps_no_run_from_going_on(train, capsys):
    run = train("--checkpoint-every", "640")
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join([*lines[:2], lines[2][:20] + "\n", *lines[3:]]))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        main(["resume", str(run.path), "--total-steps", "1408", "--quiet"])
    assert re.fullmatch(r"warning: \S+metrics.jsonl, line 3: .*; it is left out\n", capsys.readouterr().err)
    assert [row[STEP] for row in open_run(run.path).rows()] == [128, 256, *range(512, 1409, 128)]


def damage(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_taken(train, capsys):
    run, whole = train("--checkpoint-every", "256"), train("--checkpoint-every", "256", name="whole")
    (*_, before, last) = run.checkpoints().steps().values()
    damage(last)
    run.set_status("running")  # as a kill leaves it
    main(["resume", str(run.path), "--quiet"])
    warning = capsys.readouterr().err
    assert warning.startswith(f"warning: {last} is damaged: its checksum does not match its contents; it is set aside")
    assert warning.endswith("; going on from step 1024\n")
    assert before.name == "step_000000001024.safetensors"
    assert_same(open_run(run.path), whole)
    assert [row[STEP] for row in run.rows()] == [row[STEP] for row in whole.rows()]


def test_with_no_whole_checkpoint_left_nothing_is_done(train, refused):
    run = train("--checkpoint-every", "256")
    for path in run.checkpoints().steps().values():
        damage(path)
    rows = run.rows()
    assert "there is no usable checkpoint" in refused("resume", run.path)
    assert run.rows() == rows
    assert "there is no usable checkpoint" in refused("resume", run.path)


def test_a_finished_run_says_so_and_can_be_given_more(train, capsys):
    run, longer = train(steps=640), train(steps=1280, name="longer")
    main(["resume", str(run.path)])
    said = capsys.readouterr().out
    assert said.startswith("run is finished, after 640 steps")
    assert "velocirl resume run --total-steps N" in said
    main(["resume", str(run.path), "--total-steps", "1280", "--quiet"])
    run = open_run(run.path)
    assert [row[STEP] for row in run.rows()] == [row[STEP] for row in longer.rows()]
    assert run.checkpoints().latest().state.document["goal"] == [0, 1280]
    assert run.description.plan.total_steps == 1280
    assert "total_steps = 1280\n" in (run.path / "config.toml").read_text()


def test_a_new_end_must_lie_ahead(train, refused):
    run = train(steps=640)
    assert "run has taken 640 steps already" in refused("resume", run.path, "--total-steps", 640)
    assert run.description.plan.total_steps == 640


def test_a_run_that_reached_its_target_goes_on_when_it_is_given_more(train):
    run = train("--target-return", "5", steps=100_000)
    reached = run.rows()[-1][STEP]
    assert reached < 10_000
    main(["resume", str(run.path), "--total-steps", str(reached + 512), "--quiet"])
    assert open_run(run.path).rows()[-1][STEP] == reached + 512


def test_a_run_that_is_going_on_is_left_alone(train, refused):
    run = train()
    with run.hold():
        assert "run is running in another process" in refused("resume", run.path, "--total-steps", 2000)


def test_the_environment_of_a_file_is_found_again(train, my_pole, refused, tmp_path, data_home):
    run = train(environment=str(my_pole), steps=256)
    main(["resume", str(run.path), "--total-steps", "512", "--quiet"])
    assert run.rows()[-1][STEP] == 512
    moved = my_pole.rename(tmp_path / "moved.py")
    assert f"there is no file {my_pole}, in which the environment should be defined" in refused(
        "resume", run.path, "--total-steps", 768
    )
    main(["resume", str(run.path), "--total-steps", "768", "--env", str(moved), "--quiet"])
    assert run.rows()[-1][STEP] == 768
    my_pole.write_text("raise SystemError('imported')")
    (data_home / "environment_files.jsonl").unlink()  # as for a run that comes from somewhere else
    assert f"{run.path} wants {my_pole} imported, which is code" in refused("resume", run.path, "--total-steps", 1024)


@pytest.mark.parametrize("arguments", [[], ["--total-steps", "9"]])
def test_without_a_run_the_newest_is_meant(arguments, train, refused, capsys):
    assert "there are no runs yet" in refused("resume", *arguments)
    train(steps=128)
    if arguments:
        assert "run has taken 128 steps already" in refused("resume", *arguments)
    else:
        main(["resume"])
        assert "run is finished, after 128 steps" in capsys.readouterr().out


def test_what_is_no_run_is_one_line(refused):
    assert "there is no run 'nothing'" in refused("resume", "nothing")
    assert "there is no option --total-step: did you mean --total-steps?" in refused("resume", "x", "--total-step", "3")
