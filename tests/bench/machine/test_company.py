import subprocess
import sys
import time

import psutil

from velocirl.bench.machine.company import Company

BUSY = "import time\nuntil = time.perf_counter() + {seconds}\nwhile time.perf_counter() < until: pass"


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_our_own_work_and_that_of_our_children_is_not_company():
    """Whatever else runs here: all of us together cannot have used more than the machine has."""
    company, began, worked = Company(), time.perf_counter(), time.process_time()
    spin(0.5)
    subprocess.run([sys.executable, "-c", BUSY.format(seconds=0.5)], check=True)
    with subprocess.Popen([sys.executable, "-c", BUSY.format(seconds=30)]) as child:
        spin(0.5)
        cores, elapsed = company.cores(), time.perf_counter() - began
        last = sum(psutil.Process(child.pid).cpu_times()[:2])
        child.kill()
    ours = (time.process_time() - worked + last) / elapsed
    assert ours > 0.05
    assert 0.0 <= cores <= psutil.cpu_count() - ours + 0.1


def test_what_others_do_is_company():
    """A program that is no child of ours: its parent has ended."""
    command = f"[sys.executable, '-c', {BUSY.format(seconds=60)!r}]"
    silent = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"  # else we would wait for its end
    code = f"import subprocess, sys; print(subprocess.Popen({command}, {silent}).pid)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    other = psutil.Process(int(done.stdout))
    try:
        company, before = Company(), other.cpu_times().user
        time.sleep(1.0)
        cores, worked = company.cores(), other.cpu_times().user - before
    finally:
        other.kill()
    assert worked > 0.0
    assert cores >= 0.8 * worked - 0.05
