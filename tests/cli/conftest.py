"""What tests of the commands share: runs in a place of their own, and trainings that are over in a blink."""

import os
import sys

import pytest

from velocirl.cli.main import main
from velocirl.runs import recording
from velocirl.runs.directory import open_run

COMMAND = [sys.executable, "-W", "error", "-c", "from velocirl.cli.main import main; main()"]
SMALL = [
    "--num-envs",
    "8",
    "--horizon",
    "16",
    "--minibatch-size",
    "64",
    "--epochs",
    "1",
    "--threads",
    "1",
    "--seed",
    "3",
]
WITHOUT_PICTURES = """
import importlib.util

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("matplotlib", "tensorboard") else found(name, *rest)
"""
# The functions are CartPole's, so that nothing has to be compiled for it.
MY_POLE = """
from velocirl import Environment
from velocirl.environments import cartpole as original

environment = Environment(
    "MyPole-v0",
    state=original.State,
    params=original.Params,
    observation=original.environment.observation,
    action=original.environment.action,
    max_steps=500,
    reset=original.reset,
    step=original.step,
    observe=original.observe,
    presets={"ppo": {"total_steps": 640, "gamma": 0.9, "gae_lambda": 0.8, "horizon": 4, "num_envs": 2}},
)
"""


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch, keep_runs_at):
    """Runs are kept here."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data" / "velocirl"


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Pictures and events take longer than these trainings; they have tests of their own."""
    monkeypatch.setattr(recording, "draw_curve", lambda *_: False)
    monkeypatch.setattr(recording, "available", lambda: False)


@pytest.fixture(scope="session")
def without_pictures(tmp_path_factory):
    """A directory that lets a Python which has it on its path take matplotlib and tensorboard for missing."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "sitecustomize.py").write_text(WITHOUT_PICTURES)
    return directory


@pytest.fixture
def no_pictures_in_processes(without_pictures, monkeypatch):
    """Nor do processes that tests start draw any."""
    paths = [str(without_pictures), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def command():
    return COMMAND


@pytest.fixture
def my_pole(tmp_path):
    """A file that defines an environment."""
    path = tmp_path / "my_pole.py"
    path.write_text(MY_POLE)
    return path


@pytest.fixture
def train(tmp_path):
    """Train in a new directory and give back the run."""

    def train(*arguments, name="run", environment="CartPole-v1", steps=1280):
        given = ["--total-steps", str(steps)] if steps else []
        main(["train", environment, *SMALL, *given, "--run-dir", str(tmp_path / name), "--quiet", *arguments])
        return open_run(tmp_path / name)

    return train


@pytest.fixture
def refused(capsys):
    """Run a command that must end with an exit code and one line on stderr, and give back the line."""

    def refused(*arguments, code=2):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        captured = capsys.readouterr()
        assert ended.value.code == code, captured.err
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        return captured.err

    return refused
