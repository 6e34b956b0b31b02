"""What tests of the commands share: runs in a place of their own, and trainings that are over in a blink."""

import errno
import os
import shutil
import sys
from contextlib import suppress

import pytest

from velocirl.cli.main import main
from velocirl.engine import directories
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


@pytest.fixture(scope="session")
def keep_runs_at():
    """The variables by which runs are kept in a directory, while the compile cache stays the user's own."""
    together = bool(os.environ.get("VELOCIRL_HOME")) or sys.platform == "darwin"
    cache, homes = directories.cache_directory(), []

    def keep_runs_at(path):
        if not together:
            return {"XDG_DATA_HOME": str(path)}
        homes.append(path / "velocirl" / "compiled")
        homes[-1].mkdir(mode=0o700, parents=True, exist_ok=True)
        for home in homes[-2:-1]:  # what was compiled there is not lost
            share(home, cache)
        share(cache, homes[-1])
        return {"XDG_DATA_HOME": str(path), "VELOCIRL_HOME": str(path / "velocirl")}

    return keep_runs_at


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch, keep_runs_at):
    """Runs are kept here."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data" / "velocirl"


def share(source, target):
    """Let a directory have what another one has, too."""
    for path in source.iterdir() if source.is_dir() else ():
        if not path.name.startswith("."):  # nor what is still being written
            with suppress(FileExistsError, FileNotFoundError):
                link(path, target / path.name)


def link(source, target):
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


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
