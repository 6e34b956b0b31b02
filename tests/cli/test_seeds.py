"""`velocirl train --seeds`: each seed is a run like any other, and the group says what they say together."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from watched_agent import agent_at

from velocirl.cli.main import main
from velocirl.cli.train.seed_processes import SeedProcess
from velocirl.cli.train.seeds import _note_compiling
from velocirl.cli.train.seeds_display import SeedsDisplay
from velocirl.monitor.heartbeat import Heartbeat
from velocirl.runs.directory import Plan, create_run, open_run
from velocirl.runs.groups import create_group, open_group
from velocirl.runs.metrics import STEP

COMMAND = [sys.executable, "-W", "error", "-c", "from velocirl.cli.main import main; main()"]
# Of the first group, which is trained before, they are looked at.
pytestmark = pytest.mark.usefixtures("no_pictures_in_processes")
SEEDS = [3, 4, 5]
LONG = ["--total-steps", "65536", "--checkpoint-every", "5000"]  # 512 iterations
UNLUCKY = """
import sys
from pathlib import Path

if any(word.endswith("seed-4") for word in sys.argv) and not Path(__file__).with_name("lucky").exists():
    raise RuntimeError("this seed is unlucky")
"""


def assert_same(first, second):
    first, second = (run.checkpoints().latest().state for run in (first, second))
    assert first.document == second.document
    for name in first.arrays:
        assert first.arrays[name].tobytes() == second.arrays[name].tobytes(), name


def start(command, *arguments, **options):
    words = [*command, *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, keep_runs_at):
    """A group of three, its home, and the events that its training printed."""
    home = tmp_path_factory.mktemp("home")
    options = {"num-envs": 8, "horizon": 16, "minibatch-size": 64, "epochs": 1, "seed": 3, "total-steps": 1280}
    small = [word for name, value in options.items() for word in (f"--{name}", value)]
    arguments = ["train", "CartPole-v1", *small, "--seeds", "3"]
    environment = {**os.environ, **keep_runs_at(home)}
    process = start(COMMAND, *arguments, "--run-dir", home / "group", "--json", env=environment)
    printed, complaints = process.communicate(timeout=240)
    assert (process.returncode, complaints) == (0, "")
    return home, open_group(home / "group"), [json.loads(line) for line in printed.splitlines()]


@pytest.fixture
def group(trained, monkeypatch, keep_runs_at):
    home, group, _ = trained
    for name, value in keep_runs_at(home).items():
        monkeypatch.setenv(name, value)
    return group


def test_a_finished_group_is_resumed_by_its_own_command_and_by_no_other(group, small, refused, capsys):
    words = ["train", "CartPole-v1", *map(str, small), "--run-dir", str(group.path), "--exist", "resume", "--quiet"]
    main([*words, "--total-steps", "1280", "--seeds", "3"])
    assert "all 3 seeds of group are finished" in capsys.readouterr().out
    assert "was trained with seeds=[3, 4, 5], and seeds=[3, 4] is asked for" in refused(*words, "--seeds", "2")
    assert "was trained with gamma=0.99, and gamma=0.5" in refused(*words, "--seeds", "3", "--gamma", "0.5")
    assert "is a group of runs: resume it by `velocirl resume" in refused(*words)
    assert "is a run of one seed: leave out --seeds" in refused(
        "train", "CartPole-v1", "--seeds", "2", "--run-dir", group.path / "seed-3", "--exist", "resume"
    )


def test_every_line_of_json_says_its_seed_and_the_first_seed_compiles_alone(trained):
    *events, summary = trained[2]
    assert {event["seed"] for event in events} == set(SEEDS)
    by_seed = {seed: [event for event in events if event["seed"] == seed] for seed in SEEDS}
    for seed, some in by_seed.items():
        assert [event["event"] for event in some] == ["start", *["metrics"] * 10, "end"]
        assert (some[0]["config"]["seed"], some[-1]["steps"]) == (seed, 1280)
    assert events[0].items() >= {"event": "start", "seed": 3}.items()
    assert summary["event"] == "summary"
    assert summary["path"] == str(trained[1].path)


def test_the_summary_is_computed_from_the_runs(trained):
    _, group, events = trained
    written = json.loads((group.path / "summary.json").read_text())
    assert {"event": "summary", "path": str(group.path), **written} == events[-1]
    finals = [open_run(group.run_path(seed)).rows()[-1]["rollout/ep_rew_mean"] for seed in SEEDS]
    assert [one["return"] for one in written["seeds"]] == finals
    assert len(set(finals)) == 3
    low, high = stats.t.interval(0.95, 2, np.mean(finals), stats.sem(finals))
    found = [written[name] for name in ("mean", "low", "high")]
    assert found == pytest.approx([np.mean(finals), low, high])
    assert (written["method"], written["averaged"], written["steps"]) == ("Student t over seeds", 3, 3840)
    assert written["steps_per_second"] == pytest.approx(3840 / written["seconds"], rel=0.01)
    assert group.curve_path.read_bytes().startswith(b"\x89PNG")


def test_each_seed_is_the_run_that_its_seed_makes_alone(trained, train):
    group, alone = trained[1], train("--seed", "4")
    run = open_run(group.run_path(4))
    assert_same(run, alone)
    assert run.description.threads == 1
    assert run.description.plan == alone.description.plan
    assert (run.path / "config.toml").read_text() == (alone.path / "config.toml").read_text()
    shared = tomllib.loads((group.path / "config.toml").read_text())
    assert shared == {k: v for k, v in tomllib.loads((run.path / "config.toml").read_text()).items() if k != "seed"}


def test_a_seed_is_evaluated_by_its_path_and_by_the_name_of_its_group(group, capsys, refused):
    for name in (f"{group.path}/seed-4", "group/seed-4"):
        main(["evaluate", name, "--episodes", "5", "--json", "--latest"])
        assert json.loads(capsys.readouterr().out)["steps"] == 1280
    assert "group is a group of 3 runs: choose one, such as group/seed-3" in refused("evaluate", "group")
    assert "there is no run" in refused("evaluate", "group/seed-9")


def test_runs_lists_a_group_as_one_entry_with_its_seeds(group, capsys, refused):
    main(["runs", "--json"])
    (entry,) = json.loads(capsys.readouterr().out)
    summary = json.loads((group.path / "summary.json").read_text())
    assert (entry["name"], entry["status"], entry["steps"], entry["total_steps"]) == ("group", "finished", 3840, 3840)
    assert entry["return"] == summary["mean"]
    assert [(one["seed"], one["status"], one["steps"]) for one in entry["seeds"]] == [
        (seed, "finished", 1280) for seed in SEEDS
    ]
    main(["runs"])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:6] == ["group", "CartPole-v1", "ppo,", "3", "seeds", "finished"]
    main(["runs", "group"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["seed-3", "seed-4", "seed-5"]
    assert "there is no group of runs 'grope'" in refused("runs", "grope")


def test_a_finished_group_says_so_and_is_not_written_over(group, capsys, refused):
    for arguments in (["resume", "group"], ["resume"]):  # without a name, the newest is meant
        main(arguments)
        assert capsys.readouterr().out.startswith("all 3 seeds of group are finished: go further with")
    assert "have taken 1280 steps already" in refused("resume", "group", "--total-steps", 1280)
    assert open_group(group.path).description.plan.total_steps == 1280
    message = refused("train", "CartPole-v1", "--seeds", "2", "--run-dir", group.path, "--exist", "error")
    assert "is a group of runs already: go on with it by `velocirl resume" in message


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_all_of_them_and_resume_goes_on_bit_for_bit(sent, command, small, train, tmp_path, capsys):
    where = tmp_path / "group"
    arguments = ["train", "CartPole-v1", *small, *LONG, "--seeds", "2", "--run-dir", where, "--json"]
    process = start(command, *arguments, start_new_session=True)
    for number, _ in enumerate(process.stdout):
        if number == 50:
            os.killpg(process.pid, sent)  # to the whole foreground, as a terminal does
            break
    rest, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == ({signal.SIGINT: 130, signal.SIGTERM: 143}[sent], "")
    summary = json.loads(rest.splitlines()[-1])
    assert summary["event"] == "summary"
    assert summary["seeds"][0]["status"] == "stopped"
    group = open_group(where)
    run = open_run(group.run_path(3))
    assert list(run.checkpoints().steps())[-1] < 65536
    assert run.description.status == "stopped"
    main(["resume", str(where), "--json"])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["status"] for one in events[-1]["seeds"]] == ["finished", "finished"]
    assert events[-1]["seconds"] > summary["seconds"]
    for seed in (3, 4):
        assert_same(open_run(group.run_path(seed)), train(*LONG, "--seed", str(seed), name=f"alone-{seed}", steps=None))


@pytest.mark.slow
def test_one_that_fails_is_named_the_others_go_on_and_resume_tries_it_again(
    command, small, my_pole, tmp_path, capsys, refused
):
    my_pole.write_text(f"{UNLUCKY}\n{my_pole.read_text()}")
    where = tmp_path / "group"
    arguments = ["train", my_pole, *small, "--total-steps", "256", "--seeds", "3", "--run-dir", where]
    one_core = {min(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else None
    process = start(command, *arguments, preexec_fn=(lambda: os.sched_setaffinity(0, one_core)) if one_core else None)
    printed, complaints = process.communicate(timeout=240)
    assert process.returncode == 1
    assert complaints.startswith(f"error: seed 4: {my_pole}:")
    assert complaints.endswith(": RuntimeError: this seed is unlucky\n")
    lines = printed.splitlines()
    if one_core:  # one after another
        assert lines[0] == "MyPole-v0  ppo  3 seeds, 1 at a time"
        ends = [line.split()[:3] for line in lines if line.startswith("seed ") and "after" in line]
        assert ends == [["seed", "3", "finished"], ["seed", "4", "failed"], ["seed", "5", "finished"]]
    table = {line.split()[0]: line.split()[1:3] for line in lines if line.split()[0] in ("3", "4", "5")}
    assert table == {"3": ["finished", "256"], "4": ["failed", "0"], "5": ["finished", "256"]}
    assert any("(Student t over seeds, 2 seeds)" in line for line in lines)
    assert lines[-1] == "next  velocirl resume group"
    tmp_path.joinpath("lucky").touch()
    main(["resume", "group", "--quiet"])
    assert capsys.readouterr().out == ""
    assert [one.status for one in open_group(where).summary().seeds] == ["finished"] * 3
    main(["resume", "group", "--total-steps", "512", "--quiet"])  # all of them
    assert [one.steps for one in open_group(where).summary().seeds] == [512] * 3
    assert "total_steps = 512\n" in (where / "config.toml").read_text()


@pytest.mark.slow
def test_a_seed_that_ended_before_its_first_checkpoint_begins_anew(command, small, tmp_path):
    where = tmp_path / "group"
    arguments = ["train", "CartPole-v1", *small, "--total-steps", "640", "--seeds", "1", "--run-dir", where, "--quiet"]
    main(list(map(str, arguments)))
    run = open_run(where / "seed-3")
    for file in (run.path / "checkpoints").iterdir():
        file.unlink()
    run.set_status("running")  # as a kill leaves it
    before = run.rows()
    main(["resume", str(where), "--quiet"])
    again = open_run(where / "seed-3")
    assert again.description.status == "finished"
    assert [row[STEP] for row in again.rows()] == [row[STEP] for row in before] == list(range(128, 641, 128))
    assert again.checkpoints().latest().step == 640


@pytest.mark.parametrize("number", ["0", "-1", "few"])
def test_mistakes_are_one_line(number, refused):
    assert "seeds" in refused("train", "CartPole-v1", "--seeds", number)


def picture(processes, height):
    """What a terminal shows, as lines."""
    console = Console(force_terminal=True, width=100, height=height, file=io.StringIO())
    with console.capture() as captured:
        console.print(SeedsDisplay(console, processes, "title")._picture())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).splitlines()


def test_the_display_has_a_line_for_each_seed_and_one_for_all():
    processes = [SeedProcess(seed, [], 1000) for seed in (7, 8, 9)]
    processes[0].note({"event": "start", "steps": 0, "total_steps": 2000})
    processes[0].note({"event": "metrics", STEP: 500, "rollout/ep_rew_mean": 123.4, "time/fps": 100.0})
    processes[1].state, processes[1].steps, processes[1].mean = "finished", 1000, 200.0
    first, second, third, total = picture(processes, height=20)
    assert [word for word in first.split() if "━" not in word] == [
        "seed", "7", "500", "of", "2k", "return", "123.4", "15", "s", "left",
    ]  # fmt: skip
    assert "return 200.0" in second
    assert second.rstrip().endswith("finished")
    assert third.split()[:2] == ["seed", "9"]
    assert third.rstrip().endswith("waiting")
    assert total.split()[:3] == ["1,500", "steps", "38%"]
    assert total.rstrip().endswith("1 running, 1 finished, 1 waiting")


def test_a_seed_that_compiles_is_shown_to(tmp_path):
    plan = Plan(total_steps=1000, checkpoint_every=100)
    group = create_group(tmp_path / "group", "CartPole-v1", "ppo", [7, 8], {}, plan)
    run = create_run(group.run_path(7), "CartPole-v1", "ppo", {}, 7, plan=plan)
    processes = [SeedProcess(seed, [], 1000, state="starting") for seed in (7, 8)]
    agent = agent_at(total=1000)
    heartbeat = Heartbeat(run)
    heartbeat.prepare(agent)
    _note_compiling(group, processes)
    first, second, total = picture(processes, height=20)
    assert first.rstrip().endswith("compiling")
    assert second.rstrip().endswith("starting")
    assert total.rstrip().endswith("1 compiling, 1 starting")
    assert processes[0].alive
    heartbeat.start(agent)
    processes[0].note({"event": "start", "steps": 0, "total_steps": 1000})
    _note_compiling(group, processes)
    assert [one.state for one in processes] == ["running", "starting"]


def test_where_there_is_no_room_those_that_are_alive_are_shown():
    processes = [SeedProcess(seed, [], 1000) for seed in range(40)]
    processes[33].state = "running"
    shown = {line.split()[1] for line in picture(processes, height=12) if line.startswith("seed")}
    assert len(shown) == 8
    assert "33" in shown
