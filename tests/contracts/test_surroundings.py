"""Tests pass whatever started them: here other tests, with SIGINT and SIGHUP ignored and variables of velocirl set."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

TESTS = Path(__file__).parents[1]
IGNORING = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"]
# One that interrupts a command, one that closes a terminal, and one whose files would lie elsewhere.
SOME = [
    "cli/test_cli.py::test_an_interrupt_exits_130_without_a_word",
    "cli/test_resume.py::test_a_terminal_that_is_closed_saves_the_run_and_ends_it",
    "cli/test_dataset.py::test_what_is_wrong_is_said_in_one_line",
]
LEAVES = """
import subprocess, sys

def test_a_process_is_left():
    code = "import time; name = 'velocirl'\\nwhile True: time.sleep(0.01)"
    print(subprocess.Popen([sys.executable, "-c", code]).pid)
"""


def run_tests(*arguments, through=(), **environment):
    return subprocess.run(
        [*through, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=TESTS.parent,
    )


def test_signals_that_are_ignored_and_variables_do_not_matter(tmp_path):
    given = {"VELOCIRL_HOME": str(tmp_path / "home"), "VELOCIRL_DEBUG": "1", "VELOCIRL_CACHE_SIZE": "1"}
    done = run_tests(*(TESTS / one for one in SOME), through=IGNORING, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("." * 15)
    assert not (tmp_path / "home").exists()


def test_no_process_of_velocirl_is_left_behind_a_failed_test(tmp_path):
    (tmp_path / "test_leaving.py").write_text(LEAVES)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = run_tests("-s", "-p", "conftest", "-c", os.devnull, tmp_path, PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not psutil.pid_exists(int(done.stdout.split()[0]))
