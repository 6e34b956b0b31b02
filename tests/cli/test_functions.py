"""`velocirl.train_seeds`, `plot` and `plot_table`: what the commands do, from Python."""

import json

import numpy as np
import pytest

import velocirl
from velocirl.cli.main import main
from velocirl.runs import recording
from velocirl.runs.directory import create_run

STEP, RETURN = "time/total_timesteps", "rollout/ep_rew_mean"
SMALL = {"device": "python", "num_envs": 2, "horizon": 32, "minibatch_size": 64, "epochs": 1, "hidden": (4,)}


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch, keep_runs_at):
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(recording, "available", lambda: False)


def run_of(path, values):
    run = create_run(path, "CartPole-v1", "ppo", {}, 0)
    with run.metrics() as log:
        for step, value in enumerate(values, 1):
            log.append({STEP: 100 * step, RETURN: value, "my/figure": 2.0 * value, "time/time_elapsed": step})
    run.set_status("finished")
    return run


@pytest.mark.slow
def test_seeds_are_trained_as_the_command_trains_them(tmp_path, capsys):
    group = velocirl.train_seeds("ppo", "CartPole-v1", 2, 128, run_dir=tmp_path / "group", seed=7, **SMALL)
    assert group.path == tmp_path / "group"
    assert group.description.seeds == [7, 8]
    assert [(one.seed, one.status, one.steps) for one in group.results()] == [
        (7, "finished", 128),
        (8, "finished", 128),
    ]
    assert (group.summary().averaged, group.summary().steps) == (2, 256)
    alone = velocirl.PPO("CartPole-v1", seed=8, threads=1, **SMALL).learn(128)
    trained = velocirl.load(group.path / "seed-8", best=False)
    np.testing.assert_array_equal(trained.parameters, alone.parameters)
    assert capsys.readouterr().out == ""  # nobody looks
    curve = velocirl.plot(group).lines[0].curve
    assert curve.seeds == 2


def test_what_processes_cannot_reach_is_refused():
    environment = velocirl.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"which .* does not reach as an object: name it by its id, or by its file"):
        velocirl.train_seeds("ppo", environment)
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        velocirl.train_seeds("ppo", "CartPole-v1", 0)


def test_a_plot_is_that_of_the_command(tmp_path, capsys):
    one, other = (run_of(tmp_path / name, values) for name, values in (("one", [1.0, 2.0, 4.0]), ("other", [3.0, 3.0])))
    paths = [tmp_path / "curves.csv", tmp_path / "curves.html", tmp_path / "curves.png"]
    plotted = velocirl.plot(one, str(other.path), metric="figure", smooth=2, out=paths)
    assert [line.curve.y.tolist() for line in plotted.lines] == [[2.0, 3.0, 6.0], [6.0, 6.0]]
    assert capsys.readouterr().out == ""
    command = ["plot", str(one.path), str(other.path), "--metric", "figure", "--smooth", "2"]
    main([*command, "--out", str(tmp_path / "theirs.csv"), "--json"])
    assert [line["y"] for line in json.loads(capsys.readouterr().out)["lines"]] == [[2.0, 3.0, 6.0], [6.0, 6.0]]
    assert (tmp_path / "theirs.csv").read_bytes() == paths[0].read_bytes()
    assert paths[2].read_bytes() == plotted._repr_png_()
    assert plotted._repr_png_().startswith(b"\x89PNG")
    velocirl.plot(one)
    ours = capsys.readouterr().out
    main(["plot", str(one.path)])
    assert capsys.readouterr().out == ours != ""
    with pytest.raises(ValueError, match=r"curves.gif must end in \.png"):
        velocirl.plot(one, out="curves.gif")


def test_the_map_of_a_table_is_that_of_the_command(tmp_path, capsys):
    agent = velocirl.QLearning("CliffWalking-v1", seed=0, num_envs=4)
    agent.table.arrays.rows["values"][:] = np.random.default_rng(0).normal(size=(48, 4))
    path = agent.save(tmp_path / "agent")
    shown = velocirl.plot_table(agent, tmp_path / "map.png")
    assert (shown.picture.values == agent.value(np.arange(48)).reshape(4, 12)).all()
    assert repr(shown) == "<map of CliffWalking-v1, q-learning, 0 steps, 4 x 12>"
    main(["table", str(path), "--png", str(tmp_path / "theirs.png")])
    told = capsys.readouterr().out
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "map.png").read_bytes() == shown._repr_png_()
    velocirl.plot_table(path)
    assert capsys.readouterr().out == told.partition("\n")[2] != ""
    with pytest.raises(ValueError, match="PPO has no table: plot_table is for QLearning"):
        velocirl.plot_table(velocirl.PPO("CartPole-v1", device="python"))
