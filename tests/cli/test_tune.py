"""`velocirl tune`: what is measured is shown, what is chosen is a file for `train`, and mistakes are one line each."""

import json
import signal
import subprocess
import time
import tomllib

import pytest

from velocirl import PPO
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.cli.main import main
from velocirl.cli.settings import read_request
from velocirl.engine.targets.cores import available_cores
from velocirl.runs.directory import open_run

GRID = ["GridWorld-v0", "--algorithm", "q-learning"]
BRIEF = ["--budget", "1", "--seeds", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*arguments):
    main(["tune", *map(str, arguments)])


def test_it_measures_chooses_shows_and_writes_what_train_accepts(here, capsys):
    tune(*GRID, "--budget", "6", "--seeds", "2", "--json", "all.json", "--gamma", "0.9")
    shown = capsys.readouterr().out
    file = here / "GridWorld-v0-tuned.toml"
    assert "reference: num_envs=64" in shown
    assert "quality: a return of" in shown
    assert "chosen: " in shown
    assert "velocirl train --config GridWorld-v0-tuned.toml" in shown

    found = json.loads((here / "all.json").read_text())
    assert found["partial"] is False
    assert found["total_steps"] == 50_000
    rows = {row["name"]: row for row in found["candidates"]}
    assert found["chosen"] in rows
    reference, chosen = rows["reference"], rows[found["chosen"]]
    assert len(reference["trials"]) == 2
    assert reference["trials"][0]["returns"][-1] > 0.9
    assert found["goal"]["quality"] == pytest.approx(found["goal"]["reached"] - found["goal"]["tolerance"])
    assert min(reference["samples"]) <= reference["steps_per_second"]["median"] <= max(reference["samples"])

    request = read_request(["--config", str(file)])
    assert (request.environment, request.algorithm, request.total_steps) == ("GridWorld-v0", QLearning, 50_000)
    assert request.values["gamma"] == 0.9
    assert "seed" not in request.values
    for name, value in chosen["learning"].items():
        assert request.values[name] == value
    main(["train", "--config", str(file), "--run-dir", "run", "--quiet"])
    run = open_run(here / "run")
    assert run.description.config["gamma"] == 0.9
    assert run.description.plan.total_steps == 50_000


def test_a_file_that_is_there_stays_unless_it_is_said_to_go(here, refused):
    file = here / "mine.toml"
    file.write_text("mine")
    assert "mine.toml is there already: --force" in refused("tune", *GRID, "--output", file)
    assert file.read_text() == "mine"
    tune(*GRID, "--budget", "0.3", "--seeds", "2", "--output", file, "--force", "--seed", "5")
    assert tomllib.loads(file.read_text())["seed"] == 5


def test_what_is_given_is_not_tuned(here, my_pole, capsys, small):
    fixed = ["--num-envs", 8, "--horizon", 16, "--minibatch-size", 64]
    tune(f"{my_pole}:MyPole-v0", *fixed, *BRIEF, "--steps", 4000, "--json", "all.json", "--all")
    found = json.loads((here / "all.json").read_text())
    assert found["given"] == {"num_envs": 8, "horizon": 16, "minibatch_size": 64}
    assert found["total_steps"] == 4000
    tried = {name for row in found["candidates"] for name in {**row["learning"], **row["running"]}}
    assert tried <= {"threads", "device"}
    values = tomllib.loads((here / "MyPole-v0-tuned.toml").read_text())
    assert values["environment"] == f"{my_pole}:MyPole-v0"
    assert (values["num_envs"], values["gamma"], values["gae_lambda"]) == (8, 0.9, 0.8)  # given, and the preset's
    assert 1 <= values["threads"] <= available_cores()
    agent = PPO(
        "CartPole-v1", **{name: value for name, value in values.items() if name in PPO.Config.__dataclass_fields__}
    )
    assert agent.config.horizon == 16


def test_without_a_preset_only_what_cannot_change_learning(here, my_pole, capsys):
    my_pole.write_text(my_pole.read_text().replace('"total_steps": 640, ', ""))
    tune(my_pole, "--budget", "0.5", "--json", "all.json")
    found = json.loads((here / "all.json").read_text())
    assert "no preset" in " ".join(found["notes"])
    assert "no preset" in capsys.readouterr().out
    assert all(row["learning"] == {} and row["trials"] == [] for row in found["candidates"])
    assert "total_steps" not in tomllib.loads((here / "MyPole-v0-tuned.toml").read_text())


def test_where_trainings_do_not_fit_the_budget_it_is_said_what_would(here, capsys):
    tune(*GRID, "--budget", "0.3", "--steps", "1B")
    shown = capsys.readouterr().out
    assert "6 trainings are not in the budget" in shown
    assert "would do" in shown
    assert "chosen: the reference itself" in shown  # a table has nothing that could not change learning


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say which environment"),
        (["CartPol-v1"], "did you mean 'CartPole-v1'?"),
        (["gym:Nothing-v3"], "Gymnasium has no environment 'Nothing-v3'"),
        (["nowhere.py"], "there is no file"),
        (["CartPole-v1", "--algorithm", "pppo"], "did you mean 'ppo'?"),
        (["CartPole-v1", "--buget", "3"], "there is no option --buget: did you mean --budget?"),
        (["CartPole-v1", "--budget", "0"], "budget must be a number of seconds above 0"),
        (["CartPole-v1", "--budget", "nan"], "budget must be a number of seconds above 0"),
        (["CartPole-v1", "--seeds", "1"], "seeds must be at least 2"),
        (["CartPole-v1", "--steps", "0"], "steps must be at least 1"),
        (["CartPole-v1", "--tolerance", "1"], "tolerance must be from 0 to below 1"),
        (["CartPole-v1", "--num-envs", "0"], "num_envs must be at least 1"),
        (["CartPole-v1", "--output", "nowhere/file.toml"], "there is no directory"),
        (["CartPole-v1", "--json", "."], "is a directory"),
        ([*GRID, "--runtime", "mpi"], "leave out --runtime"),
        (["CartPole-v1", "--algorithm", "dqn", "--buffer-file", "x"], "leave it out"),
        (["Pendulum-v1", "--algorithm", "dqn"], "use SAC"),
    ],
    ids=lambda value: "-".join(value)[:40] or "nothing" if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_nothing_is_measured(refused, here, arguments, says):
    assert says in refused("tune", *arguments)
    assert list(here.glob("*.toml")) == []


@pytest.mark.parametrize("stage", ["measuring speed", pytest.param("measuring learning", marks=pytest.mark.slow)])
def test_an_interrupt_shows_what_there_is_and_writes_no_settings(here, command, stage):
    words = ["tune", "CartPole-v1", "--budget", "6", "--json", "all.json", "--threads", "1", "--steps", "5000"]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if stage in line:
            break
    assert stage in said[-1], said
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    rest, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (130, "")
    assert "partial" in rest
    assert "reference: " in rest
    assert list(here.glob("*.toml")) == []
    found = json.loads((here / "all.json").read_text())
    assert (found["partial"], found["chosen"]) == (True, None)
    assert any(row["glance_steps_per_second"] for row in found["candidates"])
