"""Sums by the memory of a machine, of three real processes, beside NumPy's; and what becomes of them when one ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from velocirl.scale import shared_sums
from velocirl.vector.host.workers import open_memory

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has such memory")
RANKS = 3
SIZES = (0, 1, 7, 1000, 50_000, 300_001)  # the last two by slices, and the last in pieces
KINDS = ("float32", "float64", "int64")
# The local rank of each; and who cannot do what.
LAYOUTS = {"one machine": (0, 1, 2), "two machines": (0, 1, 0), "three machines": (0, 0, 0),
           "none to be had": (0, 1, 2), "not to be found": (0, 1, 2)}  # fmt: skip
FAULTS = {"none to be had": (0, "open_memory"), "not to be found": (1, "_open")}
SCRIPT = """
import json, os, signal, sys, time
import numpy as np
from pathlib import Path
from velocirl.scale import shared_sums
from velocirl.scale.launching import Launch
from velocirl.scale.ranks import LostRankError
from velocirl.scale.torch_ranks import TorchRanks

def fail(*arguments):
    raise OSError("no space left")

directory = Path(sys.argv[1])
layouts, faults, sizes, kinds = json.loads(sys.argv[2])

def be(rank):
    told = {"process": os.getpid()}
    for name, places in layouts.items():
        ranks = TorchRanks(Launch("torch", rank, 3, 3, "torchrun", places[rank]))
        who, what = faults.get(name, (None, "_open"))
        right = getattr(shared_sums, what)
        if rank == who:
            setattr(shared_sums, what, fail)
        sums = {}
        for kind in kinds:
            for size in sizes:
                array = (np.random.default_rng(rank).normal(size=size) * 100).astype(kind)
                ranks.sum(array)
                sums[f"{kind} {size}"] = array
        setattr(shared_sums, what, right)
        told[name] = ranks._machine is not None
        np.savez(directory / f"{name} {rank}.npz", **sums)
        if name == "one machine":
            first, told["mapped"] = ranks, "/memfd:velocirl (deleted)" in Path("/proc/self/maps").read_text()
            square = np.asfortranarray(np.arange(6.0).reshape(2, 3))
            ranks.sum(square)
            told["square"] = square.tolist()
            told["in turn"] = []
            for number in range(500):
                array = np.full(5000, number)
                ranks.sum(array)
                told["in turn"] += np.unique(array).tolist()
    (directory / f"{rank}.json").write_text(json.dumps(told))
    began = time.monotonic()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        first.sum(np.zeros(1000))
    except LostRankError as error:
        (directory / f"{rank}.txt").write_text(f"{time.monotonic() - began} {error}")
        os._exit(3)  # there is nobody to take leave of

processes = []
for rank in range(3):
    if not (process := os.fork()):  # so that everything is imported once
        be(rank)
    processes.append(process)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Where three ranks have left what they found out."""
    directory = tmp_path_factory.mktemp("sums")
    (directory / "script.py").write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    variables = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(directory / "script.py"), str(directory), json.dumps([LAYOUTS, FAULTS, SIZES, KINDS])]
    environment = {**os.environ, **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [3, -signal.SIGKILL, 3], done.stderr
    return directory


def test_memory_is_known_by_its_token():
    """A process may have the number of one on another machine, with other files, or with memory of its own."""
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile() as file:
        descriptor, token = shared_sums._make(2, stack)
        process, empty = os.getpid(), open_memory()
        stack.callback(os.close, empty)
        memory = shared_sums._open(process, descriptor, token, 2)
        assert len(memory) == os.fstat(descriptor).st_size > 4 * shared_sums.SLOT
        assert shared_sums._open(process, descriptor, token + 1, 2) is None
        assert shared_sums._open(process, descriptor, token, 3) is None
        assert shared_sums._open(process, empty, token, 2) is None
        assert shared_sums._open(process, file.fileno(), token, 2) is None
    with pytest.raises(FileNotFoundError):
        shared_sums._open(process, descriptor, token, 2)


@pytest.fixture(scope="module")
def told(job):
    return [json.loads((job / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ranks_have_the_same_sums(job, layout):
    """In the order of the ranks where all are on one machine, or on two of which the first has the first ones."""
    first, *others = (np.load(job / f"{layout} {rank}.npz") for rank in range(RANKS))
    for kind in KINDS:
        for size in SIZES:
            parts = [(np.random.default_rng(rank).normal(size=size) * 100).astype(kind) for rank in range(RANKS)]
            total = first[f"{kind} {size}"]
            assert total.dtype == kind
            if layout in ("one machine", "two machines"):
                assert total.tobytes() == (parts[0] + parts[1] + parts[2]).tobytes()
            else:
                np.testing.assert_allclose(total, sum(parts), rtol=1e-6, atol=1e-4)
            assert all(one[f"{kind} {size}"].tobytes() == total.tobytes() for one in others)


def test_memory_is_shared_where_all_ranks_can(told):
    shared = ["one machine", "two machines"]
    assert [[name for name in LAYOUTS if one[name]] for one in told] == [shared] * RANKS
    assert all(one["mapped"] for one in told)  # which has no name that could be left behind


def test_an_array_that_lies_in_one_piece_is_summed_in_its_place(told):
    assert [one["square"] for one in told] == [[[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]] * RANKS


def test_no_rank_writes_where_another_still_reads(told):
    assert [one["in turn"] for one in told] == [[3 * number for number in range(500)]] * RANKS


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_was_killed_is_named(job, told, rank):
    seconds, _, message = (job / f"{rank}.txt").read_text().partition(" ")
    assert float(seconds) < 5.0
    assert message == f"rank {rank} has lost rank 1 (process {told[1]['process']}), which ended"
