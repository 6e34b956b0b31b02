import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

import velocirl
from velocirl.cli.main import main

COMMAND = [sys.executable, "-c", "from velocirl.cli.main import main; main()"]


def exit_code(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"velocirl {velocirl.__version__}\n"


def test_help_names_the_commands_that_there_are(capsys):
    assert exit_code("--help") == 0
    assert set(re.findall(r"• (\w+)", capsys.readouterr().out)) == {"envs", "demo", "bench"}


def test_envs_lists_every_environment(capsys):
    main(["envs"])
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines}
    assert listed >= set(velocirl.list_envs())
    (cartpole,) = [line for line in lines if line.startswith("CartPole-v1 ")]
    assert cartpole.split() == ["CartPole-v1", "Box(4)", "Discrete(2)", "500", "built", "in"]


def test_envs_as_json(capsys):
    main(["envs", "--json"])
    described = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert sorted(described) == velocirl.list_envs()
    assert described["Pendulum-v1"] == {
        "id": "Pendulum-v1",
        "observation": "Box(3)",
        "action": "Box(1) -2..2",
        "max_steps": 200,
        "source": "velocirl.environments.pendulum",
    }
    assert described["TicTacToe-v1"]["observation"] == "MultiDiscrete(9 of 3)"


def test_bench_list(capsys):
    main(["bench", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["stepping", "cartpole_4096"] for line in lines)
    main(["bench", "memory", "--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["category", "memory"]


def test_a_quick_run_really_measures(tmp_path, capsys):
    figures, tables = tmp_path / "figures.json", tmp_path / "BENCHMARKS.md"
    main(["bench", "spaces", "--quick", "--json", str(figures), "--markdown", str(tables)])
    content = json.loads(figures.read_text())
    assert [one["name"] for one in content["benchmarks"]] == ["flatten", "unflatten"]
    assert content["command"] == f"velocirl bench spaces --quick --json {figures} --markdown {tables}"
    for one in content["benchmarks"]:
        ours, peer = one["contestants"]
        assert len(ours["samples"]) == len(peer["samples"]) >= 3
        assert one["findings"][0]["estimate"]["low"] > 10.0  # whole batches against one value at a time
        assert ours["estimate"]["median"] > 1e6
    assert "velocirl / Gymnasium" in tables.read_text()
    assert "rows/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "steping"], "error: no benchmarks of category 'steping': did you mean 'stepping'?"),
        (["bench", "--json", "/nowhere/at/all.json"], "error: /nowhere/at/all.json: there is no directory"),
        (["demo", "--seconds", "0"], "error: --seconds must be above 0"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments, message, capsys):
    assert exit_code(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_debugging_shows_where(monkeypatch):
    monkeypatch.setenv("VELOCIRL_DEBUG", "1")
    with pytest.raises(ValueError, match="steping"):
        main(["bench", "steping"])


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("bench", "--nonsense")])
def test_what_is_no_command_exits_2(arguments, capsys):
    assert exit_code(*arguments) == 2
    assert capsys.readouterr().out == ""


def test_markers_are_checked_before_anything_is_measured(tmp_path, capsys):
    path = tmp_path / "BENCHMARKS.md"
    path.write_text("<!-- bench:begin --> and no end")
    assert exit_code("bench", "spaces", "--quick", "--markdown", str(path)) == 2
    assert capsys.readouterr().out == ""
    assert path.read_text() == "<!-- bench:begin --> and no end"


def test_demo_in_a_pipe_is_plain_text(capsys):
    main(["demo", "--seconds", "0.1"])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    rates = re.findall(r"([\d.]+)([kMG]) steps/s", text)
    assert len(rates) == 3
    assert all(float(rate) > 0 for rate, _ in rates)
    assert len(re.findall(r"pole of [\d.]+ m after 5 steps: position", text)) == 3
    assert "velocirl envs" in text


def test_demo_in_a_terminal_of_80_columns_moves_and_does_not_wrap():
    host, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*COMMAND, "demo", "--seconds", "0.3"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
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
    assert max(len(line) for line in plain.splitlines()) <= 80


def test_an_interrupt_exits_130_without_a_word():
    process = subprocess.Popen(
        [*COMMAND, "bench", "startup"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("measuring"):
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 130
    assert complaints == ""
