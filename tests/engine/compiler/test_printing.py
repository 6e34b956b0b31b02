"""`print` in compiled functions: it works for numbers and text, on several threads, and never hangs."""

import os
import subprocess
import sys

SCRIPT = """
import velocirl
from toys.environments import drifting

def step(state, params, action, rng):
    state.count += 1
    print("count", state.count, state.position > 100, 0.5, "of", action)
    return 0.0, False

fleet = velocirl.make_vec(drifting("Talking-v0", step=step), 4, threads=2, seed=0)
print("compiled", flush=True)
fleet.reset()
for _ in range(3):
    fleet.step([1, 0, 1, 0])
"""


def test_two_threads_print_numbers_and_text(tmp_path):
    home = {"VELOCIRL_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT]
    # A process of its own: where printing takes the GIL and keeps it, nothing but a signal ends it.
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, **home, "PYTHONUNBUFFERED": ""},  # which would tear the lines of any two threads
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.partition("compiled\n")[2].splitlines()
    assert sorted(lines) == sorted(f"count {k} False 0.5 of {action}" for k in (1, 2, 3) for action in (1, 0, 1, 0))
