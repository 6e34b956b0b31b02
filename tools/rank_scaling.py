"""Measure what it costs to train on ranks instead of threads, on one machine: PPO, native network.

    python tools/rank_scaling.py                  # as many ranks of one thread as there are cores
    python tools/rank_scaling.py --ranks 2 --rounds 5

One process of n threads, n ranks of mpirun and n ranks of torchrun (gloo) take turns, so that a machine whose speed
changes is fair to all; the best of the rounds counts. The share of the reduction is the time that a rank spends in it,
of the rank that spends least: the others also wait there for whoever is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from velocirl.engine.targets.threads import available_cores

SETTINGS = {"num_envs": 4096, "horizon": 32, "epochs": 4, "minibatch_size": 16384, "device": "cpu", "seed": 0}
ITERATIONS = 10  # of a measurement, after two to warm up
MARK = "measured "


def measure_rank(threads: int) -> None:
    """What one process of a job does; each prints what it found."""
    from velocirl.algorithms.online.ppo import PPO

    agent = PPO("CartPole-v1", **SETTINGS, threads=threads)
    batch, spent = agent.config.batch, 0.0
    company = agent.company
    if company is not None:
        ranks: Any = company.ranks
        reduce = ranks.sum

        def timed(array: Any) -> None:
            nonlocal spent
            began = time.perf_counter()
            reduce(array)
            spent += time.perf_counter() - began

        ranks.sum = timed
    agent.learn(2 * batch)
    spent, began = 0.0, time.perf_counter()
    agent.learn(ITERATIONS * batch)
    seconds = time.perf_counter() - began
    print(MARK + json.dumps({"rate": ITERATIONS * batch / seconds, "reducing": spent / seconds}), flush=True)


def command(kind: str, ranks: int) -> list[str]:
    """How a job is started."""
    own = [__file__, "--rank"]
    if kind == "threads":
        return [sys.executable, *own, "--threads", str(ranks)]
    if kind == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        return [*launcher, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *own]
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if mpirun is None:
        raise SystemExit('there is no mpirun: pip install "velocirl[mpi]"')
    shared = ["--oversubscribe"] if ranks > available_cores() else []  # else each rank keeps to a core
    return [mpirun, *shared, "-n", str(ranks), sys.executable, *own]


def measure(kind: str, ranks: int) -> tuple[float, float]:
    """Steps per second of a job, and the share of its time that the reduction takes."""
    settings = {}
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = subprocess.run(  # noqa: S603
        command(kind, ranks), env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=600
    )
    found = [json.loads(line.partition(MARK)[2]) for line in job.stdout.splitlines() if MARK in line]
    if job.returncode or not found:
        raise SystemExit(f"{kind}: {job.stderr}")
    return min(one["rate"] for one in found), min(one["reducing"] for one in found)


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=available_cores(), help="ranks of one thread (default: the cores)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        measure_rank(arguments.threads)
        return
    kinds = ("threads", "mpirun", "torchrun")
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(arguments.rounds):
        for kind in kinds:
            found[kind].append(measure(kind, arguments.ranks))
    described = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    print(f"PPO on CartPole-v1, {described}; {arguments.ranks} threads or ranks, best of {arguments.rounds}\n")
    print("| | steps/s | to threads | reduction |\n| --- | ---: | ---: | ---: |")
    alone = max(rate for rate, _ in found["threads"])
    for kind, measured in found.items():
        rate, share = max(measured)[0], min(share for _, share in measured)
        print(f"| {kind} | {rate / 1e6:.2f}M | {rate / alone:.2f} | {share:.1%} |")


if __name__ == "__main__":
    main()
