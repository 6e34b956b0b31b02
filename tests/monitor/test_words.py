"""Figures of training in few characters."""

import numpy as np
import pytest

from velocirl import Evaluation
from velocirl.monitor.resource_use import ResourceUse
from velocirl.monitor.words import in_lines, plural, printable, say_bytes, say_gauge, say_phases, say_resources


def test_amounts_of_memory():
    assert [say_bytes(n) for n in (0, 999, 12_345, 350e6, 1.25e9, 999.6e6, 3e12)] == [
        "0 B", "999 B", "12.3 kB", "350 MB", "1.25 GB", "1 GB", "3 TB",
    ]  # fmt: skip


def test_resources():
    assert say_resources(ResourceUse(cpu_percent=180.4, memory_bytes=350_000_000)) == ["CPU 180%", "memory 350 MB"]
    busy = ResourceUse(cpu_percent=100.0, memory_bytes=10**6, other_cores=1.04)
    assert say_resources(busy)[2:] == ["other programs 1.0 cores"]
    assert len(say_resources(ResourceUse(cpu_percent=100.0, memory_bytes=1, other_cores=0.2))) == 2
    full = ResourceUse(cpu_percent=0.0, memory_bytes=1, gpu_percent=55.0, gpu_memory_bytes=2 * 10**9)
    assert say_resources(full)[2:] == ["GPU 55%", "GPU memory 2 GB"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("queue/length", 1.0, "queue length 1"),
        ("drops", 12_345.0, "drops 12.3k"),
        ("learner/waiting_seconds", 2.5, "learner waiting 2.5 s"),
        ("seconds", 61.0, "1:01"),
        ("restarts", 0.0, "restarts 0"),
        ("device/peak_bytes", 2.5e9, "device peak 2.5 GB"),
        ("collector/waiting_share", 0.426, "collector waiting 43%"),
        ("learner/batches_per_second", 1234.0, "learner batches 1.23k/s"),
        ("a\x1b[2Jb", 1.0, r"a\x1b[2Jb 1"),
    ],
)
def test_gauges(name, value, said):
    assert say_gauge(name, value) == said


def test_phases_with_their_parts_in_brackets():
    shares = {
        "update/forward": 0.3, "rollout": 0.25, "rollout/environment": 0.05, "rollout/policy": 0.2, "update": 0.75,
        "update/loss": 0.004,
    }  # fmt: skip
    assert say_phases(shares) == ["rollout 25% (policy 20%, environment 5%)", "update 75% (forward 30%)"]
    assert say_phases({"rollout": 0.25, "update": 0.75}) == ["rollout 25%", "update 75%"]
    assert say_phases({"rollout/policy": 1.0}) == ["policy 100%"]
    assert say_phases({}) == []


def test_items_are_broken_into_lines_between_them():
    assert in_lines(["one", "two three", "four"], 15) == "one   two three\nfour"
    assert in_lines(["one", "two three", "four"], 14) == "one\ntwo three\nfour"
    assert in_lines([], 10) == ""


def test_what_a_terminal_would_obey_is_spelled_out():
    assert printable("\x1b]0;title\x07\u202e\x9b2J\n") == r"\x1b]0;title\x07\u202e\x9b2J\n"
    assert printable("CartPole-v1 größer 50 %") == "CartPole-v1 größer 50 %"


def test_one_thing_is_not_several():
    said = [plural(count, word) for count, word in ((0, "run"), (1, "run"), (1200, "run"), (1, "copy"), (2, "copy"))]
    assert said == ["0 runs", "1 run", "1,200 runs", "1 copy", "2 copies"]
    assert str(Evaluation(np.array([3.0]), np.array([7]))) == "3.00 +- 0.00 over 1 episode of 7.0 steps"
