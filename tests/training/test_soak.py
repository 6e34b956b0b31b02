"""A long run keeps no memory, no file descriptor and no thread."""

import os
import threading
import time
from pathlib import Path

import pytest

import velocirl

MINUTES = 10
WARM_UP = 30.0  # seconds
MEBIBYTE = 2**20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 300)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_ten_minutes_of_training(tmp_path):
    measured = []
    began = time.monotonic()
    due = began + WARM_UP

    def watch(agent):
        nonlocal due
        now = time.monotonic()
        if now >= due:
            measured.append((resident(), sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count()))
            due = now + 5.0
        return now - began < 60 * MINUTES

    agent = velocirl.PPO("CartPole-v1", seed=0, num_envs=1024, horizon=32, minibatch_size=4096)
    kept = velocirl.Checkpoint(tmp_path, every=5_000_000)
    agent.learn(10**12, callbacks=[velocirl.Evaluate(every=5_000_000, episodes=20), kept, watch])
    memory, descriptors, threads = zip(*measured, strict=True)
    assert len(measured) > 50 * MINUTES / 10
    assert max(memory[len(memory) // 2 :]) - max(memory[: len(memory) // 4]) < 4 * MEBIBYTE
    assert len(set(descriptors)) == 1
    assert len(set(threads)) == 1
