"""`learn` from Python shows how it goes where somebody looks, and nowhere else."""

import os
import pty
import re
import subprocess
import sys

import pytest

import velocirl
from velocirl.monitor.attention import attention
from velocirl.monitor.display import Display
from velocirl.training import presenting
from velocirl.training.presenting import wanted

SMALL = {"num_envs": 2, "horizon": 4, "minibatch_size": 8, "epochs": 1, "hidden": (4,), "seed": 1, "device": "python"}
SCRIPT = f"""
import sys, time, velocirl
from velocirl.training import presenting

presenting.PATIENCE, pause, progress = float(sys.argv[1]), float(sys.argv[2]), eval(sys.argv[3])
agent = velocirl.PPO("Counter-v0", **{SMALL!r})
agent.learn(40, lambda agent: time.sleep(pause), progress=progress)
"""


def in_terminal(*arguments):
    """What a person sees of the script in a terminal, without what moves the cursor."""
    process, terminal = pty.fork()
    if process == 0:
        words = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
        os.execve(sys.executable, words, {**os.environ, "TERM": "xterm", "COLUMNS": "90"})
    seen = b""
    try:
        while chunk := os.read(terminal, 65536):
            seen += chunk
    except OSError:  # it has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, seen
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen.decode())


def test_a_terminal_shows_progress_and_how_long_it_will_take():
    seen = in_terminal(0.1, 0.1, None)
    last = seen[seen.rindex("╭") :]
    assert "Counter-v0  ppo  seed 1" in last
    assert "40 of 40 steps" in last
    assert re.search(r"\d steps   [\d.]+/s   [\d.]+ s left", seen)


@pytest.mark.parametrize("arguments", [(60.0, 0.0, None), (0.1, 0.1, False)])
def test_what_is_soon_over_or_not_wanted_leaves_the_terminal_alone(arguments):
    assert in_terminal(*arguments) == ""


def piped(*arguments):
    words = [sys.executable, "-W", "error", "-c", SCRIPT, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)


def test_elsewhere_nothing_is_shown_unless_it_is_wanted():
    quiet = piped(0.0, 0.0, None)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    lines = piped(0.0, 0.5, True).stdout.splitlines()
    assert [line.split()[1] for line in lines if "steps" in line] == ["steps"] * 2  # one in two seconds, and the last
    assert lines[-1].split()[:3] == ["40", "steps", "100%"]


def test_somebody_looks_in_a_terminal_and_in_a_notebook_unless_something_is_shown_there(monkeypatch):
    assert [wanted(progress) for progress in (None, False, True)] == [False, False, True]
    for place in ("in_terminal", "in_notebook"):
        with monkeypatch.context() as patch:
            patch.setattr(presenting, place, lambda: True)
            assert [wanted(progress) for progress in (None, False, True)] == [True, False, True]
            with attention():
                assert [wanted(progress) for progress in (None, False, True)] == [False, False, True]


def test_a_training_within_a_training_shows_nothing(monkeypatch):
    opened = []
    monkeypatch.setattr(presenting, "in_terminal", lambda: True)
    monkeypatch.setattr(Display, "prepare", lambda self, agent: opened.append(agent.source.id))
    monkeypatch.setattr(Display, "open", lambda self, agent: None)

    def train_another(agent):
        velocirl.PPO("Identity-v0", **SMALL).learn(8)

    velocirl.PPO("Counter-v0", **SMALL).learn(16, train_another)
    assert opened == ["Counter-v0"]


def test_the_terminal_is_given_back_where_training_fails(monkeypatch):
    ended = []
    end = Display.end
    monkeypatch.setattr(presenting, "in_terminal", lambda: True)
    monkeypatch.setattr(Display, "end", lambda self: (ended.append(self), end(self)))
    agent = velocirl.PPO("Counter-v0", **SMALL)
    monkeypatch.setattr(agent, "prepare", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        agent.learn(8)
    assert len(ended) == 1


def test_how_often_to_save_needs_something_to_be_saved():
    with pytest.raises(ValueError, match="give its directory as run_dir too"):
        velocirl.PPO("Counter-v0", **SMALL).learn(8, checkpoint_every=4)
