"""Measurement of the machine's peak performance by matrix products and arrays larger than any cache. Takes seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine.peaks import Peak, Peaks
from velocirl.bench.peers.process import Peer
from velocirl.engine.targets.cpu import available_cores
from velocirl.engine.targets.threads import run_together
from velocirl.runs.processor import output_of

ATTEMPTS, PASSES = 5, 20  # the best of them counts: other programs only ever slow down
FEW_CORES = 2  # the number that most training benchmarks use
MATRIX, MANY_CORES, LARGE_MATRIX = 2048, 8, 6144  # many cores need larger matrices
CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")  # such as 32768K
CACHES = 8  # minimum array size as a multiple of the last-level cache
SMALLEST, LARGEST = 128 * 2**20, 1024 * 2**20  # bytes of the array
SEGMENT = 2**21  # bytes that a thread processes at a time
DEVICE_MATRIX, DEVICE_BYTES, DEVICE_REPEATS = 8192, 2**30, 10


def measure_peaks() -> Peaks:
    """Measure the peaks of 1 core, 2 cores, all cores this process may use and, if there is one, a GPU."""
    cores = available_cores()
    moved = _memory_peaks(sorted({1, min(FEW_CORES, cores), cores}))
    peaks: list[Peak] = []
    for count in sorted(moved):
        # More cores can do at least as much as fewer, even if one of them was busy during the measurement.
        fewer = peaks[-1:] or [Peak("cpu", count, 1.0, 1.0)]
        operations = max(fewer[0].operations_per_second, _matrix_peak(count))
        peaks.append(Peak("cpu", count, operations, max(fewer[0].bytes_per_second, moved[count])))
    device = _device_peak()
    return Peaks([*peaks, device] if device else peaks)


def _matrix_peak(cores: int) -> float:
    """Measure operations per second of float32 products by NumPy's BLAS, in a process with `cores` cores."""
    size = LARGE_MATRIX if cores >= MANY_CORES else MATRIX
    with closing(Peer("numpy_matmul", "product", size, needs="numpy", cores=cores)) as peer:
        return 2.0 * size**3 / peer.best(ATTEMPTS)


def _memory_peaks(counts: list[int]) -> dict[int, float]:
    """Measure bytes read and written per second, by number of threads: an array is negated in place.

    This moves more than a copy or the sum of two arrays, whose results are read from memory before they are written.
    """
    array = np.ones(_array_bytes() // 4, np.float32)
    best = dict.fromkeys(counts, 0.0)
    for _ in range(PASSES):
        for count in counts:
            seconds = _seconds(count, len(array), lambda part: np.negative(array[part], out=array[part]))
            best[count] = max(best[count], 2 * array.nbytes / seconds)
    return best


def _seconds(threads: int, length: int, work: Callable[[slice], object]) -> float:
    """Time `work` on each segment of arrays, in `threads` threads."""
    segment = SEGMENT // 4
    ends = [length * thread // threads for thread in range(threads + 1)]
    shares = [
        [(work, (slice(first, min(first + segment, stop)),)) for first in range(start, stop, segment)]
        for start, stop in pairwise(ends)
    ]
    began = time.perf_counter()
    run_together(shares)
    return time.perf_counter() - began


def _array_bytes() -> int:
    """Return an array size of which no cache holds a substantial part."""
    try:
        cache = int(CACHE_SIZE.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        cache = 0
    return min(max(CACHES * cache, SMALLEST), LARGEST)


def _device_peak() -> Peak | None:
    """Measure the GPU's peak by torch: products in TF32 and copies within its memory; None if it cannot be used."""
    if not output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"):
        return None
    try:
        product = _device_seconds("product", DEVICE_MATRIX)
        copy = _device_seconds("copy", DEVICE_BYTES)
    except (UnavailableError, ModuleNotFoundError):
        return None
    return Peak("cuda", 1, 2.0 * DEVICE_MATRIX**3 / product, 2.0 * DEVICE_BYTES / copy)


def _device_seconds(function: str, size: int) -> float:
    with closing(Peer("torch_device", function, size, DEVICE_REPEATS, needs="torch")) as peer:
        return peer.best(ATTEMPTS) / DEVICE_REPEATS
