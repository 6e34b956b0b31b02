"""Measure what it costs to train on ranks instead of threads, on one machine: PPO or SAC, native network.

    python tools/rank_scaling.py                  # as many ranks of one thread as there are cores
    python tools/rank_scaling.py --ranks 2 --rounds 5
    python tools/rank_scaling.py --ranks 2 --algorithm sac
    python tools/rank_scaling.py --ranks 2 --busy 1   # next to a busy process
    python tools/rank_scaling.py --scaling        # 1, 2, 4, ... ranks, beside NumPy's matrix products
    python tools/rank_scaling.py --cuda           # on a GPU: what it costs that sums are part of the CUDA graphs

One process of n threads, n ranks of mpirun and n ranks of torchrun (gloo) take turns, so that a machine whose speed
changes is fair to all; the best of the rounds counts. "in sums" is the share of its time that the rank spends in
reductions that spends least there: it waits there for whoever is slower, too. "sums alone" is what as many reductions
of the same sizes take where all ranks come at the same time, one after the other.

With --busy, loops of Python keep cores busy meanwhile, and one thread next to them is measured as well.

With --scaling, ranks of mpirun are compared with as many processes that multiply matrices by NumPy, each on one thread:
cores that share caches, memory and clock do not make n times the speed of one, whatever they compute. Both are measured
right after each other, and the median of the rounds counts.

With --cuda there is one rank: without any sum, with all of them by NCCL within the graphs, and by way of the host by
gloo, which cuts the graphs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from velocirl.bench.suite.training.busy_neighbours import Neighbours
from velocirl.engine.targets.cores import available_cores

COMMON = {"device": "cpu", "seed": 0}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 4096, "horizon": 32, "epochs": 4, "minibatch_size": 16384, **COMMON},
    "sac": {"num_envs": 16, "train_every": 16, "gradient_steps": 16, "hidden": (256, 256), "batch_size": 256, **COMMON},
}
ENVIRONMENTS = {"ppo": "CartPole-v1", "sac": "Pendulum-v1"}
STEPS = {"ppo": 10 * 4096 * 32, "sac": 4000}  # of a measurement by each core, after a fifth to warm up
ON_GPU = 200  # iterations on a GPU
MARK = "measured "
GPU_KINDS = ("alone", "nccl", "host")
REPEATS = 200
MATRIX = 512  # rows and columns of NumPy's matrices, as float32
MULTIPLYING = 1.5  # seconds
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measure_rank(algorithm: str, threads: int) -> None:
    """What one process of a job does; each prints what it found."""
    from velocirl.algorithms import load_algorithms
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    agent: Any = ALGORITHMS[algorithm](ENVIRONMENTS[algorithm], **SETTINGS[algorithm], threads=threads)
    company, spent = agent.company, 0.0
    steps = STEPS[algorithm] * (threads if company is None else company.ranks.size)
    sizes: Counter[tuple[int, str]] = Counter()
    reduce: Any = None
    if company is not None:
        ranks: Any = company.ranks
        reduce = ranks.sum

        def timed(array: Any) -> None:
            nonlocal spent
            began = time.perf_counter()
            reduce(array)
            spent += time.perf_counter() - began
            sizes[array.size, array.dtype.str] += 1

        ranks.sum = timed
    agent.learn(steps // 5)
    sizes.clear()
    spent, began = 0.0, time.perf_counter()
    agent.learn(steps)
    seconds = time.perf_counter() - began
    alone = 0.0 if company is None else sum(count * sum_seconds(reduce, *size) for size, count in sizes.items())
    found = {"rate": steps / seconds, "reducing": spent / seconds, "alone": alone / seconds}
    print(MARK + json.dumps(found), flush=True)


def measure_gpu(kind: str) -> None:
    """The same of one rank on a GPU."""
    import dataclasses

    from velocirl.algorithms.online.ppo import PPO
    from velocirl.program.reducing import ALONE
    from velocirl.scale.launching import Launch
    from velocirl.scale.nccl import NCCLReducer
    from velocirl.scale.torch_ranks import TorchRanks

    agent = PPO("CartPole-v1", **{**SETTINGS["ppo"], "device": "cuda:0"})
    reducer: Any = ALONE if kind == "alone" else TorchRanks(Launch("torch", 0, 1, 1, "torchrun"))
    if kind == "nccl":
        reducer = NCCLReducer(reducer, 0)
    agent.join(agent.make_learner(dataclasses.replace(agent.task(), reducer=reducer)))
    batch = agent.config.batch
    agent.learn(10 * batch)
    began = time.perf_counter()
    agent.learn(ON_GPU * batch)
    seconds = time.perf_counter() - began
    print(MARK + json.dumps({"rate": ON_GPU * batch / seconds, "reducing": 0.0, "alone": 0.0}), flush=True)


def sum_seconds(reduce: Any, size: int, kind: str) -> float:
    """Seconds of a reduction; the quicker quarter of many, as others may use the machine."""
    array, seconds = np.zeros(size, kind), []
    for _ in range(REPEATS):
        began = time.perf_counter()
        reduce(array)
        seconds.append(time.perf_counter() - began)
    return float(np.percentile(seconds, 25))


def command(kind: str, algorithm: str, ranks: int) -> list[str]:
    """How a job is started."""
    own = [__file__, "--rank", "--algorithm", algorithm]
    if kind in GPU_KINDS:
        own, kind = [*own, "--gpu-kind", kind], "torchrun"
    if kind in ("threads", "one thread"):
        return [sys.executable, *own, "--threads", str(ranks if kind == "threads" else 1)]
    if kind == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        return [*launcher, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *own]
    return [*mpirun(ranks, shared=ranks > available_cores()), *own]  # where they are not, each rank keeps to a core


def mpirun(ranks: int, *, shared: bool) -> list[str]:
    """How ranks of Python are started, on cores that they may share with others."""
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise SystemExit('there is no mpirun: pip install "velocirl[mpi]"')
    free = ["--oversubscribe", "--bind-to", "none"] if shared else []
    return [found, *free, "-n", str(ranks), sys.executable]


def job_environment() -> dict[str, str]:
    """What ranks are told; Open MPI has to be asked twice to let root start any."""
    as_root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return {**os.environ, **(dict.fromkeys(as_root, "1") if os.geteuid() == 0 else {})}


def measure(kind: str, algorithm: str, ranks: int) -> tuple[float, ...]:
    """Steps per second of a job, and the shares of its time that reductions take, with waiting and without."""
    job = subprocess.run(  # noqa: S603
        command(kind, algorithm, ranks),
        env=job_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    # Ranks may write into the same line.
    found = [json.JSONDecoder().raw_decode(said)[0] for said in job.stdout.split(MARK)[1:]]
    if job.returncode or not found:
        raise SystemExit(f"{kind}: {job.stderr}")
    return tuple(min(one[name] for one in found) for name in ("rate", "reducing", "alone"))


def multiply(meeting: Any, found: Any) -> None:
    """Multiply matrices for a while, when all processes are there."""
    left = np.random.default_rng(0).standard_normal((MATRIX, MATRIX), np.float32)
    right, out = left.T.copy(), np.empty_like(left)
    np.matmul(left, right, out=out)
    meeting.wait()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < MULTIPLYING:
        np.matmul(left, right, out=out)
        count += 1
    found.put(count / (time.perf_counter() - began))


def products(processes: int) -> float:
    """Matrix products per second of so many processes together."""
    context = multiprocessing.get_context("spawn")
    meeting, found = context.Barrier(processes), context.Queue()
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    workers = [context.Process(target=multiply, args=(meeting, found)) for _ in range(processes)]
    for one in workers:
        one.start()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    total = sum(found.get(timeout=60) for _ in workers)
    for one in workers:
        one.join()
    return total


def compare_scaling(algorithm: str, most: int, rounds: int) -> None:
    """How ranks scale beside how NumPy does."""
    counts = [2**k for k in range(most.bit_length()) if 2**k < most] + [most]
    rates: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            rates[count].append((measure("mpirun", algorithm, count)[0], products(count)))
    own = {count: float(np.median([one for one, _ in rates[count]])) for count in counts}
    numpy = {count: float(np.median([one for _, one in rates[count]])) for count in counts}
    print(f"{algorithm.upper()} on {ENVIRONMENTS[algorithm]} by mpirun; medians of {rounds} rounds\n")
    print("| ranks | steps/s | to one | NumPy, products/s | to one | of NumPy's |\n" + "| ---: " * 6 + "|")
    for count in counts:
        ours, theirs = own[count] / own[1], numpy[count] / numpy[1]
        print(
            f"| {count} | {own[count]:,.0f} | {ours:.2f} | {numpy[count]:,.0f} | {theirs:.2f} | {ours / theirs:.0%} |"
        )
    for count in (1, most):
        print(f"\nRounds at {count}: " + ", ".join(f"{one:,.0f} and {theirs:,.0f}" for one, theirs in rates[count]))


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=available_cores(), help="ranks of one thread (default: the cores)")
    parser.add_argument("--algorithm", choices=SETTINGS, default="ppo", help="what is trained (default: ppo)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--busy", type=int, default=0, help="busy processes next to them (default: 0)")
    parser.add_argument("--scaling", action="store_true", help="1, 2, 4, ... ranks, beside NumPy's matrix products")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--cuda", action="store_true", help="one rank on a GPU, with sums and without")
    parser.add_argument("--gpu-kind", choices=GPU_KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gpu_kind:
        measure_gpu(arguments.gpu_kind)
        return
    if arguments.rank:
        measure_rank(arguments.algorithm, arguments.threads)
        return
    if arguments.scaling:
        compare_scaling(arguments.algorithm, arguments.ranks, arguments.rounds)
        return
    kinds = GPU_KINDS if arguments.cuda else ("threads", "mpirun", "torchrun")
    kinds = (*kinds, "one thread") if arguments.busy else kinds
    ranks = 1 if arguments.cuda else arguments.ranks
    found: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    neighbours = Neighbours()
    try:
        for _ in range(arguments.rounds):
            for kind in kinds:
                with neighbours.busy(arguments.busy):
                    found[kind].append(measure(kind, arguments.algorithm, ranks))
    finally:
        neighbours.close()
    name, own = arguments.algorithm, SETTINGS[arguments.algorithm]
    settings = {**own, "device": "cuda"} if arguments.cuda else own
    described = ", ".join(f"{name}={value}" for name, value in settings.items())
    print(
        f"{name.upper()} on {ENVIRONMENTS[name]}, {described}; {ranks} threads or ranks,"
        f" {arguments.busy} busy processes, best of {arguments.rounds}\n"
    )
    print(f"| | steps/s | to {kinds[0]} | in sums | sums alone |\n| --- | ---: | ---: | ---: | ---: |")
    threads = max(found[kinds[0]])[0]
    for kind, measured in found.items():
        rate, share, alone = max(measured)
        print(f"| {kind} | {rate:,.0f} | {rate / threads:.2f} | {share:.1%} | {alone:.1%} |")


if __name__ == "__main__":
    main()
