"""`velocirl train` on an environment that crashes: what to do is said, and `--check` finds the line."""

import os
import signal
import subprocess

import pytest
from cli.conftest import COMMAND

CRASHING = """
from velocirl import Discrete, Environment, int32, int64, record

@record
class State:
    count: int64
    far: int64
    board: int32[9]

def reset(state, params, rng):
    state.count += 1
    state.far = 0
    state.board[0] = 0

def step(state, params, action, rng):
    state.count += 1
    state.far = state.count // 600 * 10_000_000_000
    state.board[state.far] = 1
    return 0.0, False

def observe(state, params, observation):
    observation[0] = shown(state)

def shown(state):
    return state.count % 7

environment = Environment("Crashing-v0", state=State, observation=Discrete(7), action=Discrete(2), max_steps=200,
                          reset=reset, step=step, observe=observe)
"""


@pytest.mark.slow
def test_a_crash_says_what_to_do_and_that_names_the_line(tmp_path):
    file, home = tmp_path / "crashing.py", {"VELOCIRL_HOME": str(tmp_path / "home")}
    file.write_text(CRASHING)

    def velocirl(*arguments):
        environment = {**os.environ, **home}
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=300, env=environment)

    training = ["train", str(file), "--algorithm", "q-learning", "--seed", "1", "--total-steps", "1000000"]
    crash = velocirl(*training, "--run-dir", str(tmp_path / "run"), "--checkpoint-every", "1000")
    assert crash.returncode in (-signal.SIGSEGV, -signal.SIGBUS)
    assert "error: the run crashed in compiled code" in crash.stderr
    line = CRASHING.split("\n").index("    state.board[state.far] = 1") + 1
    for again in (["resume", str(tmp_path / "run"), "--check"], [*training, "--check"]):
        told = velocirl(*again)
        assert told.returncode == 2
        assert "error: Crashing-v0: step fails with IndexError: index 10000000000 is out of bounds" in told.stderr
        assert f"at {file}:{line}" in told.stderr
