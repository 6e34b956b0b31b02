"""What training takes of the machine, against what the kernel and psutil say."""

import mmap
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from velocirl.monitor import gpu_watch, resource_use
from velocirl.monitor.gpu_watch import GPUWatch, parse, visible_gpu
from velocirl.monitor.resource_use import ResourceReader

BUSY = "import time\nprint(flush=True)\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass\n"
PARENT = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "child.stdout.read(1)\n"
    "print(child.pid, flush=True)\n"
    "sys.stdin.read()\n"
    "child.kill()\n"
)
READINGS = """
import time
from velocirl.monitor import resource_use

def reading():
    began = time.thread_time()  # not what other programs take meanwhile
    reader.read()
    return time.thread_time() - began

resource_use.EVERY = resource_use.TREE_EVERY = 0.0
reader = resource_use.ResourceReader()
print(min(reading() for _ in range(50)))
"""


@pytest.fixture
def reader(monkeypatch):
    """One that reads whenever it is asked, and looks for new processes every time."""
    monkeypatch.setattr(resource_use, "EVERY", 0.0)
    monkeypatch.setattr(resource_use, "TREE_EVERY", 0.0)
    return ResourceReader()


@pytest.fixture
def start():
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def family():
    """This process and those below it; other tests may have left some."""
    return {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_is_what_the_kernel_says(reader):
    before = reader.read().memory_bytes
    assert before == pytest.approx(sum(map(resident, family())), abs=2**20)
    block = mmap.mmap(-1, 2**25)  # 32 MiB that nobody had before, as a block of malloc's may have been
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    assert reader.read().memory_bytes - before == pytest.approx(len(block), abs=2**21)
    block.close()


def test_a_busy_grandchild_is_counted(reader, start):
    alone, others = reader.read(), set(reader._children)
    parent, line = start(PARENT, BUSY)
    child = psutil.Process(int(line))
    reader.read()  # from here on it is known
    begun, spent = time.monotonic(), sum(child.cpu_times()[:2])
    own = sum(os.times()[:2])
    time.sleep(0.5)
    both = reader.read()
    elapsed = time.monotonic() - begun
    expected = 100.0 * (sum(child.cpu_times()[:2]) - spent + sum(os.times()[:2]) - own) / elapsed
    assert expected > 5.0
    assert both.cpu_percent == pytest.approx(expected, abs=15.0)
    expected = sum(psutil.Process(pid).memory_info().rss for pid in family())
    assert both.memory_bytes == pytest.approx(expected, rel=0.02)
    assert both.memory_bytes > alone.memory_bytes + 2**22
    parent.communicate()
    ended = reader.read()
    assert ended.memory_bytes < both.memory_bytes - 2**22
    assert set(reader._children) <= others


def test_all_processes_below_are_found(reader, start):
    parent, line = start(PARENT, BUSY)
    found = resource_use._descendants(os.getpid())
    assert {parent.pid, int(line)} <= set(found)
    assert {os.getpid(), *found} == family()


def test_without_the_kernels_lists_psutil_finds_them(monkeypatch, start, tmp_path):
    monkeypatch.setattr(resource_use, "PROCESSES", tmp_path)
    parent, line = start(PARENT, BUSY)
    reader = ResourceReader()
    reader.read()
    assert {parent.pid, int(line)} <= set(reader._children)


def test_who_asks_twice_in_a_second_gets_the_same_reading():
    reader = ResourceReader()
    first = reader.read()
    assert reader.read() is first
    assert first.cpu_percent > 0.0  # of this process since it began
    assert (first.gpu_percent, first.gpu_memory_bytes, first.other_cores) == (None, None, None)
    assert reader.mean_other_cores == 0.0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_what_others_do_on_our_cores_is_told_from_what_we_do(reader):
    """A program that is no child of ours, since its parent has ended, next to one that is."""
    reader.read()
    silent = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"  # else we would wait for its end
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {BUSY!r}], {silent}).pid)"
    other = psutil.Process(int(subprocess.check_output([sys.executable, "-c", code], text=True)))
    cores = len(os.sched_getaffinity(0))
    try:
        own, before, began = time.process_time(), sum(other.cpu_times()[:2]), time.monotonic()
        while time.monotonic() < began + 1.0:
            pass
        others = reader.read().other_cores
        worked, own = sum(other.cpu_times()[:2]) - before, time.process_time() - own
    finally:
        other.kill()
    assert 0.7 * worked - 0.05 <= others <= cores - 0.7 * own + 0.1
    assert reader.mean_other_cores == pytest.approx(others, abs=0.02)


def test_a_reading_takes_well_under_a_millisecond():
    # In a process of its own: each thread and process that other tests left behind would be looked at as well.
    assert float(subprocess.check_output([sys.executable, "-c", READINGS])) < 0.5e-3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("55, 1024\n", (55.0, 2**30)),
        ("[N/A], 3\n", (None, 3 * 2**20)),
        ("7, [Not Supported]\n", (7.0, None)),
        ("Unable to determine the device handle\n", (None, None)),
        ("nan, -3\n", (None, None)),
        ("", (None, None)),
    ],
)
def test_lines_of_nvidia_smi(line, expected):
    assert parse(line) == expected


@pytest.mark.parametrize(("visible", "gpu"), [(None, "0"), ("", "0"), ("3,1", "3"), ("GPU-0a1b", "GPU-0a1b")])
def test_the_gpu_is_the_first_that_may_be_seen(visible, gpu, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpu() == gpu


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program of our own in the place of nvidia-smi, which says what it was asked, and then what it is told."""

    def write(script):
        path = tmp_path / "bin" / "nvidia-smi"
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return write


def wait_until(condition):
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_gpu_is_asked_for_in_the_background(program, reader, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    program("echo 55, 1024; exec sleep 60")
    reader.watch_gpu()
    reader.watch_gpu()  # once is enough
    wait_until(lambda: reader.read().gpu_percent is not None)
    seen = reader.read()
    assert (seen.gpu_percent, seen.gpu_memory_bytes) == (55.0, 2**30)
    watch = reader._gpu
    assert watch.pid not in reader._children  # it is no part of training
    assert (tmp_path / "asked").read_text().split() == [
        "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--loop=2", "--id=2",
    ]  # fmt: skip
    reader.close()
    reader.close()
    assert not psutil.pid_exists(watch.pid)
    assert not watch._thread.is_alive()
    assert reader.read().gpu_percent == 55.0  # as it was at the end


def test_a_tool_that_hangs_is_not_waited_for(program, reader):
    program("exec sleep 60")
    began = time.monotonic()
    reader.watch_gpu()
    assert reader.read().gpu_percent is None
    assert time.monotonic() - began < 0.5
    wait_until(lambda: reader._gpu.pid is not None)
    reader.close()
    assert time.monotonic() - began < 5.0
    assert not psutil.pid_exists(reader._gpu.pid)


def test_a_tool_that_ends_leaves_no_old_figures(program):
    program("echo 55, 1024")
    watch = GPUWatch()
    watch._thread.join(10.0)
    assert watch.latest == (None, None)
    watch.close()


def test_without_the_tool_there_are_no_figures(monkeypatch, reader):
    monkeypatch.setattr(gpu_watch, "PROGRAM", "nvidia-smi-of-nobody")
    reader.watch_gpu()
    reader._gpu._thread.join(10.0)
    assert (reader.read().gpu_percent, reader.read().gpu_memory_bytes) == (None, None)
    reader.close()
