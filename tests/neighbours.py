"""Busy processes that are no children of this one, as other users' programs are."""

import subprocess
import sys
from contextlib import contextmanager

import psutil

LONGEST = 60.0  # seconds; nothing is left for longer, whatever happens to the tests
BUSY = "import time\nuntil = time.perf_counter() + {seconds}\nwhile time.perf_counter() < until: pass"
# Their parent ends at once. They write to nobody: else we would wait for their end.
ORPHANS = """
import subprocess, sys
for _ in range({count}):
    nowhere = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    print(subprocess.Popen([sys.executable, "-c", {code!r}], **nowhere).pid)
"""


@contextmanager
def busy_neighbours(count=1):
    """Keep `count` cores busy while this context lasts; gives the processes."""
    script = ORPHANS.format(count=count, code=BUSY.format(seconds=LONGEST))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    processes = [psutil.Process(int(number)) for number in done.stdout.split()]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
