"""`velocirl record`, `play` and `evaluate --video`: trained agents are seen, and what they do is written down."""

import csv

import numpy
import pytest
from PIL import Image

import velocirl
from velocirl.cli.main import main
from velocirl.runs import models
from velocirl.runs.models import SHIPPED


@pytest.fixture
def trained(small, train):
    train(name="pole")


def frames_of(path):
    with Image.open(path) as film:
        return film.n_frames


def test_a_run_is_filmed(trained, tmp_path, capsys):
    path = tmp_path / "play.gif"
    main(["record", "--out", str(path), "--episodes", "2", "--seed", "5"])
    said = capsys.readouterr().out
    assert f"{path}: {frames_of(path)} frames, return " in said.replace("\n", "")


def test_what_a_run_does_is_written_down(trained, tmp_path, capsys):
    path = tmp_path / "pole.csv"
    main(["record", "--out", str(path), "--episodes", "2", "--seed", "5"])
    said = " ".join(capsys.readouterr().out.split())
    expected = velocirl.rollout("pole", episodes=2, seed=5)
    returns = ", ".join(f"{one:g}" for one in expected.returns)
    assert said == f"{path}: {expected.lengths.sum()} steps of 10 columns, return {returns}"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["signal/observation[2]"]) for row in rows] == pytest.approx(
        expected.signals["observation[2]"].values, rel=1e-7
    )


def test_what_a_controller_does_is_written_down(tmp_path, capsys):
    path = tmp_path / "plant.npz"
    main(["record", "ChemicalReactor-v0", "--controller", "shipped", "--scenario", "disturbed", "--out", str(path)])
    assert "360 steps" in capsys.readouterr().out
    with numpy.load(path) as read:
        assert str(read["scenario"]) == "disturbed"
        assert not read["cost"].any()


def test_an_evaluation_may_be_filmed(trained, tmp_path, capsys):
    path = tmp_path / "play.gif"
    main(["evaluate", "--episodes", "1", "--seed", "5", "--video", str(path)])
    assert "over 1 episode of" in capsys.readouterr().out
    assert frames_of(path) > 1


def test_a_run_is_watched_as_text_where_there_are_no_colours(trained, capsys):
    main(["play", "--episodes", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("CartPole-v1, ppo")
    assert lines[1].startswith("position ")
    ends = [line for line in lines if line.startswith("episode ")]
    assert [line.split(":")[0] for line in ends] == ["episode 1", "episode 2"]
    steps = sum(int(line.split("after ")[1].split()[0].replace(",", "")) for line in ends)
    assert len(lines) == 1 + steps + 2 + 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["record"], "say where it is to be written: --out play.gif"),
        (["record", "--out", "play.avi"], "play.avi must end in .gif, .mp4 for a film, or in .csv, .npz, .png, .html"),
        (["record", "--out", "nowhere/plant.csv"], "there is no directory nowhere"),
        (["record", "--out", "plant.csv", "--fps", "3"], "--fps is for films, which end in .gif or .mp4"),
        (["record", "--out", "a.gif", "--scenario", "hot"], "--scenario is for trajectories, which end in .csv"),
        (["record", "--out", "plant.csv", "--scenario", "hot"], "CartPole-v1 has no scenario 'hot'"),
        (["record", "--out", "nowhere/play.gif"], "there is no directory nowhere"),
        (["play", "--first", "me"], "--first is for a table that has learnt TicTacToe-v1"),
        (["evaluate", "--video", "play.webm"], "play.webm must end in .gif or .mp4"),
    ],
)
def test_what_cannot_be_is_told(trained, words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("model", sorted(SHIPPED.glob("*.safetensors")), ids=lambda path: path.stem)
def test_shipped_models_are_watched_by_the_name_of_their_environment(model, capsys):
    main(["play", model.stem, "--episodes", "1", "--seed", "3"])
    said = capsys.readouterr().out
    assert said.startswith(f"the model that is shipped for {model.stem}: {model.stem}, ")
    assert "episode 1: over after" in said
    agent = velocirl.load(model.stem)
    assert agent.source.id == model.stem
    assert model.stat().st_size < 8e6


def test_without_runs_a_shipped_model_is_watched(monkeypatch, capsys):
    monkeypatch.setattr(models, "list_runs", list)
    main(["play"])
    assert capsys.readouterr().out.startswith("the model that is shipped for ")


def test_a_run_of_ones_own_comes_before_a_shipped_model(small, train, capsys):
    train(name="MinAtarBreakout-v1", environment="MinAtarBreakout-v1")
    main(["play", "MinAtarBreakout-v1"])
    assert capsys.readouterr().out.startswith("the best model of MinAtarBreakout-v1, of step ")


def test_a_shipped_model_plays_well():
    assert velocirl.evaluate(velocirl.load("MinAtarBreakout-v1"), episodes=10, seed=0).mean_return > 15
