import os
import re
import signal
import subprocess
import sys
import time

import pytest

import velocirl
from velocirl.cli.main import COMMANDS, _show_warning, main

COMMAND = [sys.executable, "-c", "from velocirl.cli.main import main; main()"]


def exit_code(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"velocirl {velocirl.__version__}\n"


def test_help_names_the_commands_that_there_are(capsys):
    main(["--help"])
    named = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
    names = ["train", "resume", "monitor", "evaluate", "table", "play", "record", "dataset", "export", "card"]
    names += ["runs", "plot", "envs", "check", "compile", "cache", "demo", "doctor", "bench", "tune", "profile"]
    assert named == names == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    assert exit_code(command, "--help") == 0
    assert f"usage: velocirl {command}" in re.sub(r"\s+", " ", capsys.readouterr().out.lower())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "steping"], "error: there is no category and no benchmark 'steping': did you mean 'stepping'?"),
        (["bench", "--json", "/nowhere/at/all.json"], "error: /nowhere/at/all.json: there is no directory"),
        (["trian", "CartPole-v1"], "error: there is no command 'trian': did you mean 'train'?"),
        ([], "error: say what to do: velocirl train | resume | monitor"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments, message, capsys):
    assert exit_code(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["train", "--help"], ["envs"], pytest.param(["doctor", "--json"], marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_a_closed_pipe_ends_a_command_quietly(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert ended.stderr == ""
    assert ended.returncode == 141 or (arguments == ["train", "--help"] and ended.returncode == 0)  # argparse's own way


def test_an_interrupt_while_it_is_being_imported_needs_no_words(tmp_path):
    (tmp_path / "numba.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    command = [sys.executable, "-c", "from velocirl_command import main; main()", "envs"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_the_package_is_the_command():
    command = [sys.executable, "-W", "error", "-m", "velocirl", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, f"velocirl {velocirl.__version__}\n"), result.stderr


def test_warnings_of_gymnasium_are_one_line_without_colours(capsys):
    _show_warning("\x1b[33mWARN: The environment Old-v0 is\nout of date.\x1b[0m")
    assert capsys.readouterr().err == "warning: The environment Old-v0 is out of date.\n"


def test_where_is_offered_only_where_a_trace_shows_more(tmp_path, capsys):
    """Not for a wrong word; but for an environment's own mistake, which lies in a file of its own."""
    assert exit_code("bench", "steping") == 2
    assert "VELOCIRL_DEBUG" not in capsys.readouterr().err
    assert exit_code("evaluate", str(tmp_path / "nothing.safetensors")) == 2
    assert "VELOCIRL_DEBUG" not in capsys.readouterr().err
    path = tmp_path / "mine.py"
    path.write_text("def told():\n    raise ValueError('no plant is connected')\n\n\ntold()\n")
    assert exit_code("train", str(path), "--quiet") == 2
    told = f"error: {path}:2: ValueError: no plant is connected (VELOCIRL_DEBUG=1 shows where)\n"
    assert capsys.readouterr().err == told


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
