"""Run directories: private, never written over, found again by path and by name."""

import json
import platform
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import numba
import numpy as np
import pytest

from velocirl.runs import directory
from velocirl.runs.directory import (
    DamagedRunError,
    Plan,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    create_run,
    is_held,
    list_runs,
    open_run,
)

CONFIG = {"gamma": 0.99, "layers": [64, 64], "target": None}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def create(directory=None, environment="CartPole-v1", algorithm="ppo", seed=7, **given):
    return create_run(directory, environment, algorithm, CONFIG, seed, **given)


def at(monkeypatch, moment):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return moment.astimezone(tz)

    monkeypatch.setattr(directory, "datetime", Clock)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_says_what_it_is_and_where_it_was_made(home):
    run = create(device="cuda", threads=3)
    written = json.loads((run.path / "run.json").read_text())
    age = datetime.now(UTC) - datetime.fromisoformat(written.pop("created"))
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert written.pop("processor") != ""
    assert written == {
        "format": 1,
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "seed": 7,
        "config": CONFIG,
        "device": "cuda",
        "threads": 3,
        "versions": {
            "python": platform.python_version(),
            "velocirl": metadata.version("velocirl"),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "status": "running",
    }


def test_a_run_without_a_directory_is_named_after_what_it_is(home, monkeypatch):
    at(monkeypatch, datetime(2026, 3, 4, 5, 6, 7).astimezone())
    made = [create(), create(), create(seed=8), create(environment="gym:ALE/Pong-v5"), create()]
    assert [run.name for run in made] == [
        "CartPole-v1-ppo-7-20260304-050607",
        "CartPole-v1-ppo-7-20260304-050607-2",
        "CartPole-v1-ppo-8-20260304-050607",
        "gym-ALE-Pong-v5-ppo-7-20260304-050607",
        "CartPole-v1-ppo-7-20260304-050607-3",
    ]
    assert {run.path.parent for run in made} == {home / "runs"}


@pytest.mark.parametrize("environment", ["../../escape", "/etc", ".hidden", "a\nb\0c"])
def test_no_environment_name_leads_out_of_the_place_of_runs(home, environment):
    run = create(environment=environment)
    assert run.path.parent == home / "runs"
    assert run.path.resolve() == run.path
    assert not run.name.startswith(".")
    assert run.description.environment == environment


def test_run_directories_and_files_are_private(home, tmp_path):
    (tmp_path / "given").mkdir(mode=0o755)
    for run in (create(), create(tmp_path / "given"), create(tmp_path / "deep" / "run")):
        assert mode(run.path) == 0o700
        assert mode(run.path / "run.json") == 0o600
    assert mode(home / "runs") == 0o700
    assert mode(home / "runs.jsonl") == 0o600


def test_a_run_is_never_written_over(tmp_path):
    run = create(tmp_path / "run")
    before = (run.path / "run.json").read_bytes()
    with pytest.raises(RunExistsError, match=f"go on with it by `velocirl resume {run.path}`"):
        create(tmp_path / "run")
    assert (run.path / "run.json").read_bytes() == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").touch()
    (tmp_path / "file").touch()
    for taken in ("notes", "file"):
        with pytest.raises(RunExistsError, match=f"{taken} is not an empty directory"):
            create(tmp_path / taken)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["diary.txt"]


def test_a_config_that_cannot_be_stored_leaves_no_directory(home, tmp_path):
    with pytest.raises(ValueError, match=r"document\.gamma is nan"):
        create_run(tmp_path / "run", "CartPole-v1", "ppo", {"gamma": float("nan")}, 0)
    assert not (tmp_path / "run").exists()


def test_an_opened_run_is_the_one_that_was_created(tmp_path, monkeypatch):
    run = create_run(tmp_path / "run", "CartPole-v1", "ppo", {"layers": (64, 64)}, 7)
    monkeypatch.chdir(tmp_path)
    for path in (run.path, str(run.path), "run", Path("run"), "./run/"):
        opened = open_run(path)
        assert opened.path == run.path
        assert opened.description == run.description


def test_the_status_is_kept(tmp_path):
    run = create(tmp_path / "run")
    for status in ("finished", "stopped", "failed", "running"):
        run.set_status(status)
        assert run.description.status == open_run(run.path).description.status == status
        assert open_run(run.path).description == run.description
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


def test_a_run_keeps_its_figures_and_checkpoints_in_its_directory():
    run = create()
    assert run.rows() == []
    with run.metrics() as log:
        log.append({"time/total_timesteps": 1, "a": 2.0})
    run.checkpoints(keep=1).save(5, {}, {})
    run.checkpoints(keep=1).save(6, {}, {})
    assert run.rows() == [{"time/total_timesteps": 1, "a": 2.0}]
    names = {str(path.relative_to(run.path)) for path in run.path.rglob("*")}
    assert names == {"run.json", "metrics.jsonl", "checkpoints", "checkpoints/step_000000000006.safetensors"}
    assert mode(run.path / "checkpoints") == 0o700
    assert (run.events_path.parent, run.curve_path) == (run.path, run.path / "learning_curve.png")


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path, monkeypatch):
    at(monkeypatch, datetime(2026, 3, 4, 5, 6, 7).astimezone())
    first, second, elsewhere = create(), create(), create(tmp_path / "elsewhere")
    other = create(environment="Pendulum-v1", algorithm="sac")
    assert open_run("Pend").path == other.path
    assert open_run("else").path == elsewhere.path
    assert open_run(first.name).path == first.path  # a whole name, though another one begins with it
    assert open_run(second.name).path == second.path
    listed = f"'CartPole' matches 2 runs, give more of the name: {first.name}, {second.name}"
    with pytest.raises(RunNotFoundError, match=listed):
        open_run("CartPole")
    with pytest.raises(RunNotFoundError, match=f"did you mean '{other.name}'"):
        open_run(other.name.replace("Pendulum", "Pendlum"))


def test_what_is_no_run_is_refused(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunNotFoundError, match=r"no run 'nothing': runs are kept in .*home/runs"):
        open_run("nothing")
    assert not home.exists()
    create()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunNotFoundError, match=r"empty is not a run: it has no run\.json"):
        open_run(tmp_path / "empty")
    with pytest.raises(RunNotFoundError, match="no run ''"):
        open_run("")


def test_all_runs_are_listed_the_newest_first_wherever_they_are(home, tmp_path, monkeypatch):
    assert list_runs() == []
    start = datetime(2026, 3, 4, tzinfo=UTC)
    made = []
    for day, place in enumerate([None, tmp_path / "elsewhere", None, tmp_path / "gone", home / "runs" / "mine"]):
        at(monkeypatch, start + timedelta(days=day))
        made.append(create(place))
    made[3].path.rename(tmp_path / "moved")
    made[0].set_status("finished")
    (home / "runs" / "stray").mkdir()
    listed = list_runs()
    assert [run.path for run in listed] == [made[4].path, made[2].path, made[1].path, made[0].path]
    assert [run.name for run in listed] == [path.name for path in (run.path for run in listed)]
    assert [run.description for run in listed] == [made[index].description for index in (4, 2, 1, 0)]
    assert [run.problem for run in listed] == [""] * 4


def test_a_torn_index_loses_one_run_and_no_other(home, tmp_path):
    first = create(tmp_path / "first")
    with (home / "runs.jsonl").open("ab") as file:
        file.write(b'{"path":"/tmp\n[1]\n{"path":7}\n{}\n')
    second = create(tmp_path / "second")
    assert {run.path for run in list_runs()} == {first.path, second.path}


def test_runs_created_at_once_by_many_processes_are_all_listed(home, tmp_path):
    script = (
        "import sys; from velocirl.runs.directory import create_run\n"
        "for i in range(5): create_run(None, 'E', 'a', {}, 0); create_run(f'{sys.argv[1]}/{i}', 'E', 'a', {}, 0)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", script, str(tmp_path / f"process{number}")])
        for number in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len({run.path for run in list_runs()}) == 20


@pytest.mark.parametrize("place", ["/proc/nowhere", "/sys/nowhere"])  # where not even root may write
def test_a_home_that_cannot_be_written_is_named_with_what_to_do(tmp_path, monkeypatch, place):
    monkeypatch.setenv("VELOCIRL_HOME", place)
    with pytest.raises(OSError, match=rf"no run can be kept in {place}/runs \(.*\): say where with --run-dir, or set"):
        create()
    with pytest.warns(UserWarning, match="will not be listed"):
        assert create(tmp_path / "run").path == tmp_path / "run"


def test_without_an_index_a_run_goes_on_and_says_that_it_is_not_listed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "file" / "home"))
    with pytest.warns(UserWarning, match="will not be listed"):
        run = create(tmp_path / "run")
    assert open_run(run.path).description == run.description


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "codec"),
        (b"[]", "Expected `object`"),
        ({"status": "flying"}, "flying"),
        ({"seed": "7"}, r"\$\.seed"),
        ({"seed": None}, r"\$\.seed"),
        ({"config": []}, r"\$\.config"),
        ({"created": "yesterday"}, r"\$\.created"),
        ({"created": "2026-03-04T05:06:07"}, r"\$\.created"),
        ({"surprise": 1}, "surprise"),
        ({"format": 2}, "format"),
        (b'{"format":1,"environment":"CartPole-v1"}', "algorithm"),
    ],
)
def test_a_damaged_description_is_refused_and_listed_as_such(content, reason):
    run, whole = create(), create(seed=8)
    file = run.path / "run.json"
    if isinstance(content, dict):
        content = json.dumps(json.loads(file.read_text()) | content).encode()
    file.write_bytes(content)
    with pytest.raises(DamagedRunError, match=rf"run\.json does not describe a run: .*{reason}") as raised:
        open_run(run.path)
    listed = {summary.path: summary for summary in list_runs()}
    assert listed[run.path].description is None
    assert listed[run.path].problem == str(raised.value)
    assert listed[whole.path].description == whole.description


def test_what_a_kill_left_unfinished_is_removed_when_a_run_is_opened(tmp_path):
    run = create(tmp_path / "run")
    (run.path / ".run.json.x.unfinished").touch()
    open_run(run.path)
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


def test_the_plan_of_a_run_is_kept(tmp_path):
    plan = Plan(total_steps=1000, checkpoint_every=100, target_return=475.0)
    run = create(tmp_path / "run", plan=plan)
    assert json.loads((run.path / "run.json").read_text())["plan"] == {
        "total_steps": 1000,
        "checkpoint_every": 100,
        "target_return": 475.0,
    }
    assert open_run(run.path).description.plan == plan
    longer = Plan(total_steps=2000, checkpoint_every=100, environment_file="/here/mine.py")
    run.describe(plan=longer)
    assert open_run(run.path).description.plan == run.description.plan == longer


def test_a_run_is_held_by_one_process_until_its_end(tmp_path):
    run = create(tmp_path / "run")
    assert not is_held(run.path)
    with run.hold():
        assert is_held(run.path)
        assert [summary.status for summary in list_runs()] == ["running"]
        with pytest.raises(RunBusyError, match="run is running in another process"), open_run(run.path).hold():
            pass
        assert is_held(run.path)
    assert not is_held(run.path)
    script = (
        "import sys, time; from velocirl.runs.directory import open_run\n"
        "with open_run(sys.argv[1]).hold(): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert is_held(run.path)
        process.kill()
        process.wait(30)
    assert not is_held(run.path)
    assert [summary.status for summary in list_runs()] == ["interrupted"]
