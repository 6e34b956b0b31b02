"""`--preprocess`: runs that learn from pictures, and what goes on with them."""

import json

import gymnasium
import pytest
from film import Film
from PIL import Image

from velocirl.cli.main import main
from velocirl.runs.directory import open_run

SETTINGS = ["--hidden", "4", "--num-envs", "2", "--horizon", "4", "--minibatch-size", "8", "--epochs", "1"]


@pytest.fixture
def run(tmp_path):
    """A run in a game of three lives, of two steps each."""
    gymnasium.register("Film-v0", Film, kwargs={"life": 8, "lives": 3})
    path, text = tmp_path / "run", "atari(noops=0, size=20)"
    given = ["--preprocess", text, "--total-steps", "16", "--seed", "1", "--threads", "1", "--device", "cpu"]
    main(["train", "gym:Film-v0", *SETTINGS, *given, "--run-dir", str(path), "--quiet"])
    yield path
    del gymnasium.registry["Film-v0"]


def test_a_run_goes_on_and_is_judged_with_its_preprocessing(run, tmp_path, capsys):
    assert 'preprocess = "atari(size=20, noops=0)"' in (run / "config.toml").read_text()
    main(["resume", str(run), "--total-steps", "32", "--quiet"])
    assert open_run(run).description.status == "finished"
    capsys.readouterr()
    main(["evaluate", str(run), "--episodes", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["lengths"] == [6, 6]  # whole games
    main(["record", str(run), "--out", str(tmp_path / "play.gif")])
    with Image.open(tmp_path / "play.gif") as film:
        assert film.n_frames == 7
    main(["train", "--config", str(run / "config.toml"), "--run-dir", str(tmp_path / "again"), "--quiet"])
    assert 'preprocess = "atari(size=20, noops=0)"' in (tmp_path / "again" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("environment", "text", "told"),
    [
        ("CartPole-v1", "atari", "CartPole-v1 is compiled and has no preprocess="),
        ("gym:CartPole-v1", "atari", "preprocess is for pictures of numbers from 0 to 255"),
        ("gym:ALE/Pong-v5", "atari(stck=4)", "atari has no argument 'stck': did you mean 'stack'?"),
    ],
)
def test_what_cannot_be_preprocessed_is_told(environment, text, told, refused):
    assert told in refused("train", environment, "--preprocess", text)
