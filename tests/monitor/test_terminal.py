"""Terminal detection: of a process by itself, and of ranks under a real mpirun."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from ranks import MPIRUN, SETTINGS, needs_mpi

from velocirl.monitor.console import make_console
from velocirl.monitor.terminal import in_terminal
from velocirl.training.presenting import wanted

RANK = """
import sys
from velocirl.monitor.console import make_console
from velocirl.monitor.terminal import in_terminal
assert sys.stdout.isatty(), "Open MPI gave this rank no pseudo-terminal: nothing is tested"
console = make_console()
console.print(f"terminal {in_terminal()} {console.is_terminal}", style="red")
"""


@pytest.mark.parametrize("stream", [io.StringIO(), None, object()])
def test_what_is_no_terminal(stream, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream)
    assert not in_terminal()


def test_a_closed_stream_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    assert not in_terminal()


def test_a_pseudo_terminal_is_a_terminal(monkeypatch):
    first, second = pty.openpty()
    with os.fdopen(first), os.fdopen(second, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert in_terminal()


KERNELS = [{"JPY_PARENT_PID": "1"}, {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}]
TRAIN = """
from velocirl.cli.main import main
main(["train", "Bandit-v0", "--device", "python", "--total-steps", "64", "--num-envs", "2", "--horizon", "16"])
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_command_of_a_notebook_has_no_terminal_though_it_has_a_pseudo_terminal(kernel, monkeypatch):
    first, second = pty.openpty()
    for name, value in {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", **kernel}.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(first), os.fdopen(second, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert not in_terminal()
        assert not make_console().is_terminal
        assert make_console().color_system is None
        assert wanted(None)  # somebody looks


def test_training_from_a_notebook_command_shows_plain_lines(tmp_path):
    first, second = pty.openpty()
    environment = {**os.environ, "VELOCIRL_HOME": str(tmp_path), "JPY_PARENT_PID": "1", "FORCE_COLOR": "1"}
    environment["TERM"] = "xterm-color"
    try:
        ended = subprocess.Popen([sys.executable, "-c", TRAIN], stdout=second, stderr=second, env=environment)
        assert ended.wait() == 0
    finally:
        os.close(second)
    with os.fdopen(first, "rb", buffering=0) as stream:
        text = stream.read(100_000).decode()
    assert "\x1b" not in text
    assert re.search(r"\n +64 steps 100%  .*return", text)


@needs_mpi
@pytest.mark.parametrize("through", [(), ("sh", "-c", '"$0" "$@"; true')], ids=["directly", "through a shell"])
def test_ranks_write_plain_text_where_their_launcher_writes_to_a_pipe(through):
    command = [MPIRUN, "-n", "2", *through, sys.executable, "-c", RANK]
    environment = {**os.environ, **SETTINGS, "TERM": "xterm-256color"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["terminal False False"] * 2 + [""]


@needs_mpi
@pytest.mark.parametrize("through", [(), ("sh", "-c", '"$0" "$@"; true')], ids=["directly", "through a shell"])
def test_ranks_of_a_launcher_in_a_terminal_are_in_one(through):
    first, second = pty.openpty()
    command = [MPIRUN, "-n", "1", *through, sys.executable, "-c", RANK]
    environment = {**os.environ, **SETTINGS, "TERM": "xterm-256color"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=second) as process:
        os.close(second)
        written = b""
        try:
            while piece := os.read(first, 4096):
                written += piece
        except OSError:  # everybody who could write has ended
            pass
        assert process.wait(60) == 0
    os.close(first)
    assert b"terminal True True" in written
    assert b"\x1b[31m" in written
