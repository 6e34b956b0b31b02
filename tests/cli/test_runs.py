"""`velocirl runs`: what there is, and how it stands."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from velocirl.cli.main import main
from velocirl.cli.runs import say_age
from velocirl.runs.directory import Plan, create_run


@pytest.fixture
def four(tmp_path):
    plan = Plan(total_steps=5000, checkpoint_every=500)
    made = {
        name: create_run(tmp_path / name, "CartPole-v1", "ppo", {}, 7, plan=plan)
        for name in ("done", "killed", "alive", "broken")
    }
    made["done"].set_status("finished")
    with made["done"].metrics() as log:
        log.append({"time/total_timesteps": 100, "rollout/ep_rew_mean": None})
        log.append({"time/total_timesteps": 5000, "rollout/ep_rew_mean": 123.46})
    (made["broken"].path / "run.json").write_text("{}")
    with made["alive"].hold():
        yield made


def test_a_run_whose_process_is_gone_was_interrupted(four, capsys):
    main(["runs", "--json"])
    found = {run["name"]: run for run in json.loads(capsys.readouterr().out)}
    assert {name: run["status"] for name, run in found.items()} == {
        "done": "finished", "killed": "interrupted", "alive": "running", "broken": "damaged",
    }  # fmt: skip
    done = found["done"]
    assert (done["steps"], done["return"], done["total_steps"], done["seed"]) == (5000, 123.46, 5000, 7)
    assert done["path"] == str(four["done"].path)
    assert found["killed"]["steps"] is None
    assert "does not describe a run" in found["broken"]["problem"]


def test_the_table(four, capsys):
    main(["runs"])
    captured = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in captured.splitlines()}
    assert rows["name"] == ["name", "environment", "algorithm", "status", "steps", "return", "age", "path"]
    assert rows["done"][1:6] == ["CartPole-v1", "ppo", "finished", "5,000", "123.5"]
    assert rows["killed"][3] == "interrupted"
    assert "warning: " in captured


def test_no_runs(capsys):
    main(["runs"])
    assert capsys.readouterr().out == "there are no runs yet: velocirl train CartPole-v1\n"


@pytest.mark.parametrize(
    ("age", "said"),
    [(12.0, "12 s"), (300.0, "5 min"), (3.5 * 3600, "3 h"), (25 * 3600, "1 d"), (-9.0, "0 s")],
)
def test_ages(age, said):
    assert say_age(datetime.now(UTC) - timedelta(seconds=age)) == said
