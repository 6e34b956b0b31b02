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
def data_home(tmp_path, monkeypatch):
    """Runs are kept here, while the compile cache stays the user's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if not os.environ.get("VELOCIRL_HOME") and sys.platform != "darwin":
        yield tmp_path / "data" / "velocirl"
        return
    cache = directories.cache_directory()  # the two lie together: what was compiled goes there and back
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "data" / "velocirl"))
    own = directories.cache_directory()
    share(cache, own)
    yield tmp_path / "data" / "velocirl"
    if own.is_dir():
        share(own, cache)


def share(source, target):
    """Let a directory have what another one has, too."""
    for path in source.iterdir():
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
