"""`velocirl doctor --distributed`: time of all-reduces over the ranks of a job, and their fraction of training."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo import PPO
from velocirl.algorithms.online.sac import SAC
from velocirl.bench.reports.terminal import new_table
from velocirl.engine.targets.cores import available_cores
from velocirl.monitor.console import make_console
from velocirl.monitor.words import say_bytes
from velocirl.scale.launching import LIMIT, Launch, launch_of
from velocirl.scale.prediction import PATTERNS, Link, Measured, Work, fit_link, fit_work
from velocirl.scale.ranks import Ranks, ranks_of
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.settings.config import as_plain

SIZES = (8, 10_000, 100_000, 1_000_000, 10_000_000)  # bytes
SECONDS = 0.5  # of measuring, per size and workload
FEWEST, MOST = 5, 100  # all-reduces per size
COMPUTING, WIDTH = 5e-3, 128  # seconds of computing before each all-reduce, about PPO's; width of the factors
NODES = (16, 256)
AGREEING = 56  # bytes of the all-reduce in which ranks agree to continue, before each iteration
LAUNCHING = (
    "this is one process: start several, on the machines that are to train together, with\n"
    "  mpirun -n 4 velocirl doctor --distributed\n"
    "  torchrun --nproc-per-node 4 -m velocirl doctor --distributed\n"
    "  srun --mpi=pmix velocirl doctor --distributed"
)


class Counting:
    """Stand-in for the ranks of a job: counts all-reduces instead of performing them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.sums: Counter[int] = Counter()  # by number of bytes

    def sum(self, array: NDArray[Any]) -> None:
        """Count the all-reduce, leaving the array unchanged."""
        self.sums[array.nbytes] += 1


def examine_ranks(*, as_json: bool) -> None:
    """Measure the all-reduces of this job and print their share of training on rank 0."""
    launch = launch_of("auto")
    if launch.size == 1:
        print(json.dumps({"ranks": 1}) if as_json else LAUNCHING)
        return
    ranks = ranks_of(launch)
    ranks.assemble(LIMIT)
    hosts = [name.decode() for name in ranks.gather(platform.node().encode())]
    measured = [Measured(ranks.size, size, sum_seconds(ranks, size)) for size in SIZES]
    link = fit_link(PATTERNS[launch.runtime], measured)
    works = [work_of(name, agent, launch, ranks) for name, agent in workloads(launch).items()]
    if ranks.rank == 0:
        if as_json:
            print(json.dumps(_document(launch, hosts, measured, link, works), indent=1))
        else:
            _show(launch, hosts, measured, link, works)


def sum_seconds(ranks: Ranks, size: int) -> float:
    """Measure the seconds of an all-reduce of `size` bytes: the mean over many, maximum over ranks.

    Ranks compute before each all-reduce, as in training: the transport has then lost its core and must get it back, and
    ranks do not arrive at the same time.
    """
    array, factor = np.zeros(size // 4, np.float32), np.ones((WIDTH, WIDTH), np.float32)
    ranks.sum(array)
    began = time.perf_counter()
    ranks.sum(array)
    # All ranks must do equally many, so rank 0's clock decides.
    count = int(ranks.broadcast(_few(time.perf_counter() - began) if ranks.rank == 0 else None))
    seconds = []
    for _ in range(count):
        until = time.perf_counter() + COMPUTING
        while time.perf_counter() < until:
            np.matmul(factor, factor)
        began = time.perf_counter()
        ranks.sum(array)
        seconds.append(time.perf_counter() - began)
    return _longest(ranks, float(np.mean(seconds)))


def workloads(launch: Launch) -> dict[str, DeepAgent]:
    """Build the workloads: many environments with a small network, and a small batch with a larger one."""
    threads = max(available_cores() // launch.local_size, 1)
    common: dict[str, Any] = {"device": "cpu", "runtime": "local", "threads": threads, "seed": 0}
    rollouts = {"num_envs": 4096, "horizon": 32, "epochs": 4, "minibatch_size": 16384, "hidden": (64, 64)}
    copies = 2 * launch.size  # one per rank, for twice as many ranks too; one update per step
    paced = {"num_envs": copies, "train_every": copies, "gradient_steps": copies, "learning_starts": 256}
    return {
        "PPO 64x64, 4096 x 32, minibatch 16384": PPO("CartPole-v1", **common, **rollouts),
        "SAC 256x256, batch 256": SAC("Pendulum-v1", **common, **paced, hidden=(256, 256), batch_size=256),
    }


def work_of(name: str, agent: DeepAgent, launch: Launch, ranks: Ranks) -> Work:
    """Measure an iteration of an agent: this rank computes its shard for the job's size, and for twice as many ranks.

    All ranks compute at the same time, as in training, and the slowest one counts.
    """
    computed, sums = {}, {}
    for size in (2 * launch.size, launch.size):
        counting = Counting(launch.rank, size)
        trial = type(agent)(agent.source.id, **as_plain(agent.config))
        trial.join(trial.make_learner(dataclasses.replace(trial.task(), reducer=counting)))
        warm_up(trial)
        ranks.assemble(LIMIT)
        counting.sums.clear()
        before = trial.iterations
        computed[size] = _longest(ranks, iteration_seconds(trial))
        iterations = trial.iterations - before
        sums = {nbytes: count / iterations for nbytes, count in counting.sums.items()}
    sums[AGREEING] = sums.get(AGREEING, 0.0) + 1
    return fit_work(name, computed, sums)


def warm_up(agent: DeepAgent) -> None:
    """Compile, and run the first few updates."""
    agent.learn(getattr(agent.config, "learning_starts", 0) + agent.config.num_envs, progress=False)


def iteration_seconds(agent: DeepAgent) -> float:
    """Return the seconds of an iteration: the median over about one second of them."""
    times: list[float] = []

    def note(_: Any) -> bool:
        times.append(time.perf_counter())
        return len(times) < FEWEST or times[-1] - times[0] < 2 * SECONDS

    agent.learn(2**40, note, progress=False)
    return float(np.median(np.diff(times))) if times else 0.0  # on rank 0 only, where ranks train together


def _few(seconds: float) -> bytes:
    """Return the number of all-reduces to measure, given the duration of one."""
    return b"%d" % min(max(int(SECONDS / max(seconds, 1e-9)), FEWEST), MOST)


def _longest(ranks: Ranks, seconds: float) -> float:
    """Return the maximum of the ranks' measurements, on every rank."""
    told = np.zeros(ranks.size)
    told[ranks.rank] = seconds
    ranks.sum(told)
    return float(told.max())


def _document(
    launch: Launch, hosts: Sequence[str], measured: Sequence[Measured], link: Link, works: Sequence[Work]
) -> dict[str, Any]:
    return {
        "ranks": launch.size,
        "launcher": launch.launcher,
        "runtime": launch.runtime,
        "hosts": list(hosts),
        "sums": [{"bytes": one.size, "seconds": one.seconds} for one in measured],
        "link": dataclasses.asdict(link),
        "iterations": [
            {
                "name": work.name,
                "compute_seconds": work.computing(launch.size),
                "sum_seconds": work.summing(link, launch.size),
                "share": work.share(link, launch.size),
                "predicted_shares": {str(nodes): work.share(link, nodes) for nodes in NODES},
            }
            for work in works
        ],
    }


def _show(
    launch: Launch, hosts: Sequence[str], measured: Sequence[Measured], link: Link, works: Sequence[Work]
) -> None:
    console = make_console()
    places = ", ".join(f"{count} on {host}" for host, count in Counter(hosts).items())
    carrier = "shared memory and gloo" if launch.runtime == "torch" else "MPI"
    console.print(f"{launch.size} ranks of {launch.launcher}, by {carrier}: {places}", markup=False, soft_wrap=True)
    table = new_table(console)
    for column in ("a sum of", "takes", "each rank sends", "the model says"):
        table.add_column(column, justify="right")
    for one in measured:
        rate = 2 * (one.ranks - 1) / one.ranks * one.size / one.seconds
        predicted = link.sum_seconds(one.ranks, one.size)
        table.add_row(say_bytes(one.size), _say(one.seconds), f"{say_bytes(rate)}/s", _say(predicted))
    console.print(table)
    table = new_table(console)
    table.add_column("an iteration of")
    for column in ("computes", "sums up", "share of sums", *(f"with {nodes}" for nodes in NODES)):
        table.add_column(column, justify="right")
    for work in works:
        shares = (f"{work.share(link, count):.1%}" for count in (launch.size, *NODES))
        table.add_row(work.name, _say(work.computing(launch.size)), _say(work.summing(link, launch.size)), *shares)
    console.print(table)
    bandwidth = f"{say_bytes(1 / link.seconds_per_byte)}/s" if link.seconds_per_byte else "no limit seen"
    console.print(
        f"The model: {_say(link.latency)} a message, {bandwidth}, {link.pattern}. With {NODES[0]} and {NODES[1]} ranks:"
        " the same batch, over the same links. That ranks wait for the slowest one comes on top.",
        markup=False,
        soft_wrap=True,
    )


def _say(seconds: float) -> str:
    """Format a short duration."""
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
