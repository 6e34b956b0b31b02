"""`velocirl demo`: it learns, and shows it."""

import os
import pty
import re
import subprocess

import pytest

from velocirl.cli.main import main


def test_in_a_pipe_it_is_plain_text_and_solved(capsys):
    main(["demo", "--seconds", "0.1"])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert re.search(r"solved in [\d.]+ s, [\d.]+k steps: the pole stands for 4[789]\d\.\d of 500 steps", text)
    mean = float(re.search(r"return ([\d.]+) \+- [\d.]+ over 100 episodes", text)[1])
    assert mean >= 475.0
    assert re.search(r"400 ┤ *[⠁-⣿]", text)  # the learning curve
    assert len(re.findall(r"pole of [\d.]+ m after 5 steps: position", text)) == 3
    assert "velocirl envs" in text


def test_in_a_terminal_of_80_columns_moves_and_does_not_wrap(command):
    host, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*command, "demo", "--seconds", "0.3"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    shown = bytearray()
    try:
        while chunk := os.read(host, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(host)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    frames = text.count("▀" * 24) + len(re.findall(r"(?:\x1b\[[\d;]*m▀(?:\x1b\[0m)?){24}", text))
    assert frames >= 8 * 3 * 2  # eight lines of three pictures, more than once
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).replace("\r", "\n")
    assert "CartPole-v1  ppo  seed" in plain
    assert max(len(line) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize("seconds", ["0", "-1", "601"])
def test_an_impossible_time_is_refused(seconds, refused):
    assert refused("demo", "--seconds", seconds).startswith("error: --seconds must be above 0 and at most 600")
