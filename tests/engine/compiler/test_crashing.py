"""A crash of compiled code: something is said, and the process dies of what it would have died of."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import faulthandler, os, signal, sys, threading
from velocirl.engine.compiler.crashing import said_on_crash
number = int(sys.argv[1])
if sys.argv[2] == "faulthandler":
    faulthandler.enable()
with said_on_crash("left\\n"):
    pass
with said_on_crash("use --check\\n"):
    crash = threading.Thread(target=os.kill, args=(os.getpid(), number))
    crash.start()
    crash.join()
    signal.pause()
"""


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"])
def test_a_crash_is_told_and_stays_a_crash(name):
    number = getattr(signal, name)
    command = [sys.executable, "-c", SCRIPT, str(int(number)), "faulthandler" if name == "SIGSEGV" else ""]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == -number
    assert result.stderr.startswith("use --check\n")
    assert ("Fatal Python error" in result.stderr) == (name == "SIGSEGV")  # who came before us is still heard
