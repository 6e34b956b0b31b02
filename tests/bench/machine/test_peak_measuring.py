"""The peaks of this machine, beside what NumPy does in this process."""

import os
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine import peak_measuring
from velocirl.bench.machine.peak_measuring import measure_peaks
from velocirl.bench.peers.process import Peer
from velocirl.engine.targets.cores import available_cores
from velocirl.runs.processor import output_of


def best(call, attempts=5):
    seconds = []
    for _ in range(attempts):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@pytest.mark.slow
def test_the_peaks_of_this_machine():
    peaks = [peak for peak in measure_peaks().all if peak.device == "cpu"]
    assert [peak.cores for peak in peaks] == sorted({1, min(2, available_cores()), available_cores()})
    for fewer, more in pairwise(peaks):
        assert more.operations_per_second >= fewer.operations_per_second
        assert more.bytes_per_second >= fewer.bytes_per_second
    left, right = np.random.default_rng(0).random((2, 1024, 1024), np.float32)
    here = 2 * 1024**3 / best(lambda: left @ right)
    assert 0.2 < peaks[-1].operations_per_second / here < 5
    large = np.zeros(2**24, np.float32)
    copied = 2 * large.nbytes / best(large.copy)
    assert 0.3 < peaks[-1].bytes_per_second / copied < 30


def test_more_cores_can_do_what_fewer_did(monkeypatch):
    monkeypatch.setattr(peak_measuring, "available_cores", lambda: 2)
    monkeypatch.setattr(peak_measuring, "_matrix_peak", {1: 5e10, 2: 4e10}.get)
    monkeypatch.setattr(peak_measuring, "_memory_peaks", lambda counts: dict(zip(counts, (1e10, 3e10), strict=True)))
    monkeypatch.setattr(peak_measuring, "_device_peak", lambda: None)
    one, two = measure_peaks().all
    assert (one.cores, one.operations_per_second, one.bytes_per_second) == (1, 5e10, 1e10)
    assert (two.cores, two.operations_per_second, two.bytes_per_second) == (2, 5e10, 3e10)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("32768K\n", 8 * 32 * 2**20), ("1024K\n", peak_measuring.SMALLEST), ("9999999K\n", peak_measuring.LARGEST),
     ("?", peak_measuring.SMALLEST)],
    ids=["usual", "small", "huge", "unknown"],
)  # fmt: skip
def test_arrays_are_larger_than_the_cache(tmp_path, monkeypatch, said, expected):
    file = tmp_path / "size"
    file.write_text(said)
    monkeypatch.setattr(peak_measuring, "CACHE_SIZE", file)
    assert peak_measuring._array_bytes() == expected


def test_every_byte_is_moved_once():
    marks = np.zeros(3 * peak_measuring.SEGMENT // 4 + 17, np.int8)

    def mark(part):
        marks[part] += 1

    for threads in (1, 3):
        marks[:] = 0
        assert peak_measuring._seconds(threads, len(marks), mark) > 0
        assert (marks == 1).all()


def test_a_gpu_that_cannot_be_used_has_no_peak(monkeypatch):
    monkeypatch.setattr(peak_measuring, "output_of", lambda *words: "a GPU")

    def fails(*arguments, **settings):
        raise UnavailableError("no driver")

    monkeypatch.setattr(peak_measuring, "Peer", fails)
    assert peak_measuring._device_peak() is None


@pytest.mark.skipif(not output_of("nvidia-smi", "-L"), reason="there is no GPU")
def test_the_peak_of_a_gpu():
    peak = peak_measuring._device_peak()
    assert peak.device == "cuda"
    assert peak.operations_per_second > 1e12
    assert peak.bytes_per_second > 1e10


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux binds processes to cores")
def test_a_peer_keeps_to_its_cores(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with closing(Peer("numpy_matmul", "product", 16, needs="numpy", cores=1)) as peer:
        assert len(os.sched_getaffinity(peer._process.pid)) == 1
        assert b"OPENBLAS_NUM_THREADS=1\0" in Path(f"/proc/{peer._process.pid}/environ").read_bytes()
