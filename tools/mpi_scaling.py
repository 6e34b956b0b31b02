"""Measure what ranks cost each other on this machine, and say what that means for many nodes.

    python tools/mpi_scaling.py
    python tools/mpi_scaling.py --write BENCHMARKS.md
    python tools/mpi_scaling.py --exchange    # 16 million states, 4 ranks: beside the exchange that scanned all rows

One, two and four ranks train TicTacToe, and merge tables of 1,000 to 10 million values. What is measured gives a model
of the time from one exchange to the next:

    steps_per_sync * step + look * rows + find * c + exchange
    exchange of a list of c changes a rank:  latency * (R - 1 + 2 ceil(log2 R)) + (R - 1) * c * (1 + 1 / R) * 14 bytes
                                             / bandwidth + merge * c + take * R * c
    exchange of sums of all E values:        2 (R - 1) * latency + 2 (R - 1) / R * 8 E bytes / bandwidth + settle * E

of which the second is taken where R * c is more than half of E. Latency and bandwidth of the nodes' network are
assumptions, printed with the figures; everything else is measured here. One rank on each node, which is as fast as a
core of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rank_scaling import MARK, job_environment, mpirun

from velocirl import Discrete, Environment, int32, random, record
from velocirl.bench.files import with_section, write_whole
from velocirl.engine.targets.cpu import available_cores
from velocirl.runs.processor import processor

BEGIN, END = "<!-- mpi:begin -->", "<!-- mpi:end -->"
RANKS = (1, 2, 4)
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)  # values of a table
CACHED = 2  # the place of the size that a processor's cache holds, as it does TicTacToe's
ACTIONS, CHANGED = 4, 10_000  # values that have moved on each rank when a list of them is measured
RECORD, VALUE = 14, 8  # bytes of a change, and of a value with its visits
STEPS, SYNC, REPEATS = 20_000_000, 100_000, 3
LATENCY, BANDWIDTH = 2e-6, 12.5e9  # assumed of the nodes' network: seconds, bytes a second
NODES = (16, 256)
LARGE = 16_000_000  # states of the large table
PERIODS = (100_000, 1_000_000)
TURNS = 5


def measure_rank() -> None:
    """What one rank of a job does; the first one prints what was found."""
    from velocirl.scale.mpi import world

    comm = world()
    found = {"ranks": comm.size, **measure_game(comm), "sizes": [measure_size(comm, size) for size in SIZES]}
    if comm.size == 1:
        found["large_step"] = measure_large_step()
    if comm.rank == 0:
        print(MARK + json.dumps(found), flush=True)


def measure_game(comm: Any) -> dict[str, Any]:
    """Steps of all ranks per second, TicTacToe, and how many values have moved by the time they meet."""
    from velocirl.algorithms.tabular.q_learning import QLearning
    from velocirl.tabular.runtimes import mpi

    learning: list[float] = []
    moved: list[int] = []
    learn_rounds, say = mpi.learn_rounds, mpi.say

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        outcome = learn_rounds(*arguments)
        learning.append(time.perf_counter() - began)
        return outcome

    def counted(comm: Any, outcome: Any, changes: int, *more: Any) -> Any:
        moved.append(changes)
        return say(comm, outcome, changes, *more)

    mpi.learn_rounds, mpi.say = timed, counted
    agent = QLearning("TicTacToe-v1", runtime="mpi", seed=0, steps_per_sync=SYNC)
    agent.learn(STEPS // 10)
    seconds = []
    for _ in range(REPEATS):
        comm.Barrier()
        began = time.perf_counter()
        agent.learn(STEPS)
        seconds.append(time.perf_counter() - began)
    mpi.learn_rounds, mpi.say = learn_rounds, say
    return {
        "steps_per_second": STEPS / min(seconds),
        "step": float(np.percentile(learning, 10)) / SYNC,
        "changes": float(np.mean(moved)) if moved else 0.0,
    }


def measure_size(comm: Any, size: int) -> dict[str, Any]:
    """What it takes to merge tables of so many values: to find what moved, to exchange a list, to exchange sums."""
    from velocirl.tabular.runtimes import mpi_exchange
    from velocirl.tabular.tables.merging import Replica
    from velocirl.tabular.tables.value_table import ValueTable

    replica = Replica(ValueTable(size // ACTIONS, ACTIONS, visits=True, marks=True))
    rng, rows = np.random.default_rng(comm.rank), replica.table.arrays.rows
    rows["visits"] = 1  # every state was met
    replica.agree()
    count = min(CHANGED, size // 2)

    def move() -> None:
        replica.agree()
        places, actions = rng.integers(len(rows), size=count), rng.integers(ACTIONS, size=count)
        replica.table.mark(places)
        rows["visits"][places, actions] += 1
        rows["values"][places, actions] += rng.normal(size=count).astype(np.float32)

    def find() -> None:
        nonlocal changes
        changes = replica.changes(comm.size)

    def move_and_find() -> None:
        move()
        find()

    changes = replica.changes(comm.size)
    found: dict[str, Any] = {"size": size, "changes": count}
    found["look"] = timing(comm, find, replica.agree)
    found["find"] = timing(comm, find, move)
    found["take"] = timing(comm, lambda: replica.take_outcomes(changes.list), move_and_find)
    found["list"] = timing(comm, lambda: mpi_exchange.share_out(comm, replica, changes), move_and_find)
    found["sum"] = timing(comm, lambda: mpi_exchange.sum_up(comm, replica), move)
    return found


def measure_exchange() -> None:
    """Ranks that take turns at both exchanges of the same changes; the first one prints what was found."""
    from scanning_exchange import ScanningReplica

    from velocirl.scale.mpi import world
    from velocirl.tabular.runtimes import mpi_exchange
    from velocirl.tabular.tables.merging import Replica
    from velocirl.tabular.tables.value_table import ValueTable

    comm = world()
    tables = [ValueTable(LARGE, ACTIONS, visits=True, marks=marks) for marks in (True, False)]
    for table in tables:
        table.arrays.rows["visits"] = 1  # every state was met
    marking, scanning = Replica(tables[0]), ScanningReplica(tables[1])
    rng = np.random.default_rng(comm.rank)

    def exchange() -> None:
        changes = marking.changes(comm.size)
        counts = np.array(comm.allgather(len(changes.list)))
        mpi_exchange.exchange(comm, marking, changes, counts)

    ways = {"now": exchange, "before": lambda: scanning.exchange(comm)}
    for name, touched in {"by each rank": LARGE // 10, "by all together": LARGE // 10 // comm.size}.items():
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(1 + TURNS):
            places = np.sort(rng.choice(LARGE, touched, replace=False))
            actions, far = rng.integers(ACTIONS, size=touched), rng.normal(size=touched).astype(np.float32)
            tables[0].mark(places)
            for table in tables:
                table.arrays.rows["visits"][places, actions] += 1
                table.arrays.rows["values"][places, actions] += far
            for way in sorted(ways, reverse=turn % 2 == 1):
                comm.Barrier()
                began = time.perf_counter()
                ways[way]()
                comm.Barrier()  # the last one counts
                seconds[way].append(time.perf_counter() - began)
            same = tables[0].arrays.rows.tobytes() == tables[1].arrays.rows.tobytes()
            if not comm.allreduce(int(same)) == comm.size:
                raise AssertionError("the two exchanges differ")
        if comm.rank == 0:
            now, before = (np.array(seconds[way][1:]) for way in ("now", "before"))
            ratio = np.median(before / now)
            print(f"10% of rows touched {name}: {1e3 * np.median(before):.0f} ms before, {1e3 * np.median(now):.0f} ms"
                  f" now, {ratio:.1f}x (median of {TURNS} turns, {np.min(before / now):.1f}x to"
                  f" {np.max(before / now):.1f}x)", flush=True)  # fmt: skip


def timing(comm: Any, work: Any, before: Any) -> float:
    """The median of some times, each after a preparation that does not count."""
    seconds, until = [], time.perf_counter() + 1.0
    before()
    work()
    for _ in range(21):
        before()
        comm.Barrier()
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
        if comm.bcast(time.perf_counter() > until):
            break
    return float(np.median(seconds))


@record
class Walker:
    """Who walks over many numbered states."""

    at: int32


def reset(state, params, rng):  # noqa: ARG001
    """Begin anywhere."""
    state.at = random.integer(rng, 0, LARGE)


def step(state, params, action, rng):  # noqa: ARG001
    """Go to a neighbour on a grid of 4,000 columns, or nearly."""
    state.at = (state.at + (1, 4001, LARGE - 1, LARGE - 4001)[action]) % LARGE
    return -1.0, state.at == 0


def observe(state, params, observation):  # noqa: ARG001
    """The number of the state."""
    observation[0] = state.at


def measure_large_step() -> float:
    """Seconds of a step on one core where the table has 16 million states, in no order that a cache could guess."""
    from velocirl.algorithms.tabular.q_learning import QLearning

    walk = Environment(
        "LargeWalk-v0",
        state=Walker,
        observation=Discrete(LARGE),
        action=Discrete(ACTIONS),
        max_steps=1000,
        reset=reset,
        step=step,
        observe=observe,
    )
    agent = QLearning(walk, seed=0, runtime="serial", storage="dense", num_envs=1024)
    agent.learn(2_000_000)
    began = time.perf_counter()
    agent.learn(4_000_000)
    return (time.perf_counter() - began) / 4_000_000


def measure() -> list[dict[str, Any]]:
    """One job after another."""
    return [json.JSONDecoder().raw_decode(launch(ranks, "--rank").split(MARK)[1])[0] for ranks in RANKS]


def launch(ranks: int, *words: str) -> str:
    """What a job of so many ranks prints."""
    command = [*mpirun(ranks, shared=ranks > available_cores()), __file__, *words]
    job = subprocess.run(  # noqa: S603
        command, env=job_environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return job.stdout


class Shape(NamedTuple):
    """What a table is like, in seconds and numbers."""

    rows: int
    actions: int
    step: float
    find: float  # a change
    merge: float  # a change, by its owner
    take: float  # a change, by all
    settle: float  # a value
    changes: float  # on each rank, when they meet


def fit(found: list[dict[str, Any]]) -> dict[str, float]:
    """The model's numbers, as they are on this machine."""
    alone, several = found[0], found[1:]
    small, large = alone["sizes"][CACHED], alone["sizes"][-1]
    model = {"step": alone["step"], "large_step": alone["large_step"], "changes": several[0]["changes"]}
    model["look"] = large["look"] / (large["size"] / ACTIONS)  # a row
    for name, one in (("", small), ("large_", large)):
        model[f"{name}find"] = max(0.0, one["find"] - one["look"]) / one["changes"]
        model[f"{name}take"] = one["take"] / one["changes"]
        model[f"{name}merge"] = max(0.0, one["list"] - one["take"]) / one["changes"]
        model[f"{name}settle"] = one["sum"] / one["size"]
    terms, rests = [], []
    for job in several:
        ranks = job["ranks"]
        for one, own in zip(job["sizes"], alone["sizes"], strict=True):
            terms.append((messages(ranks), (ranks - 1) * (1 + 1 / ranks) * one["changes"] * RECORD))
            rests.append(one["list"] - own["list"] - (ranks - 1) * own["take"])
            terms.append((2 * (ranks - 1), 2 * (ranks - 1) / ranks * one["size"] * VALUE))
            rests.append(one["sum"] - own["sum"])
    # Relative errors count, so that a table of a thousand values has as much to say as one of ten million.
    weights = 1 / np.maximum(np.abs(rests), 1e-6)
    solved = np.linalg.lstsq(np.array(terms) * weights[:, None], np.array(rests) * weights, rcond=None)[0]
    model["latency"], model["seconds_per_byte"] = (float(max(value, 0.0)) for value in solved)
    return model


def messages(ranks: int) -> float:
    """That follow each other in an exchange of lists: to all owners, and twice from all to all."""
    return ranks - 1 + 2 * np.ceil(np.log2(ranks))


def predicted(model: dict[str, float], nodes: int, period: int, shape: Shape) -> float:
    """The share of the time in which so many nodes learn."""
    changes, values = shape.changes, shape.rows * shape.actions
    if 2 * nodes * changes > values:
        moved = 2 * (nodes - 1) / nodes * values * VALUE
        exchange = 2 * (nodes - 1) * LATENCY + moved / BANDWIDTH + shape.settle * values
    else:
        moved = (nodes - 1) * (1 + 1 / nodes) * changes * RECORD
        exchange = messages(nodes) * LATENCY + moved / BANDWIDTH + (shape.merge + shape.take * nodes) * changes
    finding = model["look"] * shape.rows + shape.find * changes
    learning = period * shape.step
    return float(learning / (learning + finding + exchange))


def page(found: list[dict[str, Any]]) -> str:
    """What was measured, the model, and what it predicts."""
    model, alone = fit(found), found[0]["steps_per_second"]
    lines = [
        f"Measured by `python tools/mpi_scaling.py` on {processor()}, {os.cpu_count()} cores. TicTacToe,"
        f" `steps_per_sync` {SYNC:,}; where there are more ranks than cores they share them.",
        "",
        "| ranks | steps/s | to one rank |",
        "| ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one['ranks']} | {one['steps_per_second'] / 1e6:.1f}M | {one['steps_per_second'] / alone:.2f} |"
        for one in found
    ]
    lines += [
        "",
        f"A synchronisation, in milliseconds: to find what moved; to exchange a list of {CHANGED:,} values that moved"
        " on each rank (half of the smaller tables); to exchange the sums of all values."
        " The last figures are numbers of ranks.",
        "",
        "| values | list | sums | find" + "".join(f" | list, {n} | sums, {n}" for n in RANKS) + " |",
        "| ---: |" + " ---: |" * (3 + 2 * len(RANKS)),
    ]
    for k, size in enumerate(SIZES):
        first = found[0]["sizes"][k]
        cells = [
            f"{size:,}",
            say_bytes(first["changes"] * RECORD),
            say_bytes(size * VALUE),
            f"{1e3 * first['find']:.3f}",
        ]
        for one in found:
            cells += [f"{1e3 * one['sizes'][k]['list']:.3f}", f"{1e3 * one['sizes'][k]['sum']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    ns = {name: 1e9 * seconds for name, seconds in model.items()}
    here = "none" if model["seconds_per_byte"] == 0 else f"{1e-9 / model['seconds_per_byte']:.1f} GB/s"
    lines += [
        "",
        f"The model: a step takes {ns['step']:.0f} ns ({ns['large_step']:.0f} ns where the table has {LARGE:,} states);"
        f" to look for what moved {ns['look']:.3f} ns a row, and {ns['find']:.0f} ns a change"
        f" ({ns['large_find']:.0f} ns in a table that no cache holds); to merge {ns['merge']:.0f} ns"
        f" ({ns['large_merge']:.0f} ns) a change of the rows that a rank owns; to take over what came of it"
        f" {ns['take']:.0f} ns ({ns['large_take']:.0f} ns) a change of any rank; to sum up {ns['settle']:.1f} ns"
        f" ({ns['large_settle']:.1f} ns) a value; between ranks of"
        f" this machine {1e6 * model['latency']:.0f} us a message and {here}. Between nodes, assumed:"
        f" {1e6 * LATENCY:.0f} us and {BANDWIDTH / 1e9:g} GB/s, one rank on each. On"
        f" TicTacToe {model['changes']:,.0f} values move on a rank in"
        f" {SYNC:,} steps (taken for longer periods"
        " too, as few others are there to move); on the large table every step is counted as a value of its own, which"
        " is the worst case.",
        "",
        "| table | steps_per_sync | " + " | ".join(f"efficiency, {nodes} nodes" for nodes in NODES) + " |",
        "| --- | ---: |" + " ---: |" * len(NODES),
    ]
    for period in PERIODS:
        parts = (model[name] for name in ("step", "find", "merge", "take", "settle", "changes"))
        small = Shape(19_683, 9, *parts)
        lines.append(row(f"TicTacToe, {small.rows:,} states", model, period, small))
    for period in PERIODS:
        parts = (model[f"large_{name}"] for name in ("step", "find", "merge", "take", "settle"))
        lines.append(row(f"{LARGE:,} states, dense", model, period, Shape(LARGE, ACTIONS, *parts, float(period))))
    return "\n".join(lines)


def row(name: str, model: dict[str, float], period: int, shape: Shape) -> str:
    """A line of predictions."""
    shares = " | ".join(f"{predicted(model, nodes, period, shape):.0%}" for nodes in NODES)
    return f"| {name} | {period:,} | {shares} |"


def say_bytes(count: float) -> str:
    """A number of bytes in a unit that fits."""
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB"


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help=f"write the page between {BEGIN} and {END} of a file"
    )
    parser.add_argument("--exchange", action="store_true", help="compare the exchange with the one that scanned rows")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        (measure_exchange if arguments.exchange else measure_rank)()
        return
    if arguments.exchange:
        print(launch(4, "--rank", "--exchange"), end="")
        return
    text = page(measure())
    if arguments.write is None:
        print(text)
        return
    document = arguments.write.read_text(encoding="utf-8")
    write_whole(arguments.write, with_section(document, BEGIN, END, text))


if __name__ == "__main__":
    main()
