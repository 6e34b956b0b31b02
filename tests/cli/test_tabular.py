"""The commands with an algorithm that learns a table: trained, shown, resumed, evaluated, compared over seeds."""

import dataclasses
import json
import re
import signal
import subprocess

import numpy as np
import pytest
from same_runs import assert_same, timeless

import velocirl
from velocirl.cli.main import main
from velocirl.runs.directory import open_run
from velocirl.runs.groups import open_group
from velocirl.tabular.config import TabularConfig
from velocirl.training.agent import Agent

LAKE = ["train", "FrozenLake-v1", "--algorithm", "q-learning", "--seed", "3"]


@pytest.fixture
def lake(tmp_path):
    """Train in a new directory and give back the run."""

    def lake(*arguments, name="run", steps=200_000):
        given = ["--total-steps", str(steps)] if steps else []
        main([*LAKE, *given, "--run-dir", str(tmp_path / name), "--quiet", *map(str, arguments)])
        return open_run(tmp_path / name)

    return lake


def test_every_setting_is_an_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--algorithm", "q-learning", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in (one.name for one in dataclasses.fields(TabularConfig)):
        assert f"--{name.replace('_', '-')} " in text.replace(",", " "), name
    assert (
        "--exploration epsilon_greedy|softmax|ucb How actions are chosen in training (default: epsilon_greedy)" in text
    )
    assert "--runtime auto|serial|threads|processes|mpi|mpi-async|cuda" in text


def test_the_preset_holds_where_nothing_else_is_said(lake):
    run = lake(steps=None)
    assert run.description.plan.total_steps == 300_000
    assert run.description.config["learning_rate_schedule"] == "linear"
    assert run.description.config["num_envs"] == 64
    assert run.description.config["storage"] == "dense"
    agent = Agent.from_state(run.checkpoints().latest().state)
    assert velocirl.evaluate(agent, episodes=2000, seed=1).mean_return >= 0.71


def test_the_config_of_a_run_makes_it_again(lake, tmp_path):
    run = lake("--exploration-rate", "0.3", "--exploration-schedule", "two_phase(0.3)", "--gamma", "0.95")
    main(["train", "--config", str(run.path / "config.toml"), "--run-dir", str(tmp_path / "again"), "--quiet"])
    again = open_run(tmp_path / "again")
    assert again.description.config["gamma"] == 0.95
    assert_same(run, again)
    assert timeless(run.rows()) == timeless(again.rows())


def test_lines_of_json(capsys, tmp_path):
    main([*LAKE, "--total-steps", "100k", "--run-dir", str(tmp_path / "run"), "--json"])
    first, *rows, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["event"], first["algorithm"], first["config"]["learning_rate"]) == ("start", "q-learning", 0.1)
    assert [row["event"] for row in rows] == ["metrics"] * len(rows)
    assert [row["time/total_timesteps"] for row in rows] == [16_384, 32_768, 49_152, 65_536, 81_920, 98_304, 100_032]
    assert rows[-1]["train/learning_rate"] == 0.0
    assert rows[-1]["rollout/exploration_rate"] == pytest.approx(0.05)
    assert rows[-1]["train/states"] == 16
    assert rows[0]["train/td_error"] > 0.0
    assert (last["event"], last["status"], last["steps"]) == ("end", "finished", 100_032)


def test_what_is_shown(capsys, tmp_path):
    main([*LAKE, "--total-steps", "100k", "--run-dir", str(tmp_path / "run")])
    lines = capsys.readouterr().out.splitlines()
    progress = next(line for line in lines if "100%" in line)
    assert re.search(
        r"100,032 steps 100% .*/s  return 0\.\d+  episode length .*  exploration 0\.050  TD error", progress
    )
    assert any(line.startswith("finished after 100,032 steps") for line in lines)
    main(["runs"])
    assert re.search(r"run +FrozenLake-v1 +q-learning +finished +100,032 ", capsys.readouterr().out)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate"])
def test_a_run_that_a_signal_ended_goes_on_bit_for_bit(sent, lake, command, tmp_path):
    # A hundred iterations of 40,000 steps, with forty checkpoints: it is in the middle of them when the signal comes.
    steps, every = 4_000_000, ["--checkpoint-every", "100k"]
    whole = lake(*every, steps=steps, name="whole")
    where = tmp_path / "stopped"
    process = subprocess.Popen(
        [*command, *LAKE, *every, "--total-steps", str(steps), "--run-dir", str(where), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for number, _ in enumerate(process.stdout):
        if number == 20:
            process.send_signal(sent)
            break
    _, complaints = process.communicate(timeout=60)
    assert complaints == ""
    (*_, reached) = open_run(where).checkpoints().steps()
    assert 0 < reached < steps
    main(["resume", str(where), "--quiet"])
    assert_same(open_run(where), whole)
    assert timeless(open_run(where).rows()) == timeless(whole.rows())


def test_a_finished_run_goes_further(lake, capsys):
    run = lake()
    main(["resume", str(run.path), "--quiet"])
    assert "is finished" in capsys.readouterr().out
    main(["resume", str(run.path), "--total-steps", "300k", "--quiet"])
    assert open_run(run.path).checkpoints().latest().step == 300_032


def test_the_latest_and_the_best_are_evaluated(lake, capsys):
    run = lake("--evaluate-every", "50k", steps=200_000)
    capsys.readouterr()
    main(["evaluate", str(run.path), "--latest", "--episodes", "50", "--seed", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    agent = Agent.from_state(run.checkpoints().latest().state)
    expected = velocirl.evaluate(agent, episodes=50, seed=2)
    assert found["returns"] == expected.returns.tolist()
    assert found["algorithm"] == "q-learning"
    best = run.checkpoints().best().document
    assert best["best"]["metric"] == "eval/mean_reward"
    main(["evaluate", str(run.path), "--render", "text", "--episodes", "1"])
    assert "HFFG" in capsys.readouterr().out


@pytest.mark.slow
def test_seeds_are_compared(tmp_path, capsys):
    main([*LAKE, "--seeds", "2", "--total-steps", "50k", "--run-dir", str(tmp_path / "group")])
    text = capsys.readouterr().out
    assert "95% interval" in text
    group = open_group(tmp_path / "group")
    tables = [
        open_run(group.run_path(seed)).checkpoints().latest().state.arrays["table.values"]
        for seed in group.description.seeds
    ]
    assert not np.array_equal(*tables)
    alone = velocirl.QLearning("FrozenLake-v1", seed=3).learn(50_000)
    assert np.array_equal(tables[0], alone.table.values)


def test_mistakes_are_one_line(refused):
    assert "learning_rate must be above 0 and at most 1" in refused(*LAKE, "--learning-rate", "2")
    assert "there is no option --epsilon" in refused(*LAKE, "--epsilon", "0.1")
    assert "cannot be 'thread'" in refused(*LAKE, "--runtime", "thread")
    assert "observations of whole numbers" in refused("train", "CartPole-v1", "--algorithm", "q-learning")
    assert "did you mean 'q-learning'?" in refused("train", "FrozenLake-v1", "--algorithm", "qlearning")
