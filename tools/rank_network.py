"""Train on ranks that have a network between them, and compare that with the model of it.

    sudo python tools/rank_network.py
    sudo python tools/rank_network.py --nodes 2 4 --rate 1gbit --write BENCHMARKS.md

Each node is a network namespace of this machine, with an interface whose rate tc's token bucket limits; gloo goes over
it. The delay is that of the kernel. A burst passes unlimited, so that sums that are smaller take less than on a wire;
with a smaller one, a machine that is busy does not keep the rate. The link is fitted to sums between two
nodes. Everything else is predicted: sums between more nodes, and whole iterations, of which a rank's own part is
measured without the others' (`velocirl doctor --distributed` does the same). Nodes share the cores of this machine, so
use no more of them than it has. The last table says what 16 and 256 nodes would do over such links, and over faster
ones that are assumed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from velocirl.bench.files import with_section, write_whole
from velocirl.cli.doctor.distributed import NODES, SIZES, iteration_seconds, sum_seconds, warm_up, work_of, workloads
from velocirl.engine.targets.cpu import available_cores
from velocirl.runs.processor import processor
from velocirl.scale.launching import LIMIT, launch_of
from velocirl.scale.prediction import Link, Measured, Work, fit_link
from velocirl.scale.ranks import ranks_of
from velocirl.training.settings.config import as_plain

BEGIN, END = "<!-- network:begin -->", "<!-- network:end -->"
BRIDGE, NAME, NETWORK, PORT, MARK = "vrlbridge", "vrlnode", "10.77.0", 29517, "measured "
FAST = Link("quickest", 2e-6, 1 / 12.5e9)  # assumed of a cluster's network: MPI, 2 us, 100 Gbit/s
ASKED = 0.15  # the largest error


def measure_rank() -> None:
    """What one rank does; the first one prints what was found."""
    launch = launch_of("torch")
    ranks = ranks_of(launch)
    ranks.assemble(LIMIT)
    found: dict[str, Any] = {"ranks": launch.size, "sums": {size: sum_seconds(ranks, size) for size in SIZES}}
    found["works"] = []
    for name, agent in workloads(replace(launch, local_size=launch.size)).items():  # nodes share the cores
        if agent.one_rank_only() is not None:
            continue
        work = work_of(name, agent, launch, ranks)
        together = type(agent)(agent.source.id, **{**as_plain(agent.config), "runtime": "torch"})
        warm_up(together)
        seconds = iteration_seconds(together)
        found["works"].append({**vars(work), "seconds": seconds})
    if ranks.rank == 0:
        print(MARK + json.dumps(found), flush=True)


@contextmanager
def network(nodes: int, rate: str, burst: str) -> Iterator[None]:
    """So many namespaces on one bridge."""
    command(f"ip link add {BRIDGE} type bridge")
    try:
        command(f"ip link set {BRIDGE} up")
        for node in range(nodes):
            name = f"{NAME}{node}"
            command(f"ip netns add {name}")
            command(f"ip link add {name} type veth peer name eth0 netns {name}")
            command(f"ip link set {name} master {BRIDGE} up")
            within = f"ip netns exec {name}"
            command(f"{within} ip addr add {NETWORK}.{node + 1}/24 dev eth0")
            command(f"{within} ip link set eth0 up")
            command(f"{within} ip link set lo up")
            command(f"{within} tc qdisc add dev eth0 root tbf rate {rate} burst {burst} latency 100ms")
        yield
    finally:
        for node in range(nodes):
            command(f"ip netns del {NAME}{node}", check=False)
        command(f"ip link del {BRIDGE}", check=False)


def command(text: str, *, check: bool = True) -> None:
    """Run a command, which must be allowed to change the network."""
    done = subprocess.run(text.split(), capture_output=True, text=True, check=False)  # noqa: S603
    if check and done.returncode:
        raise SystemExit(f"{text}: {done.stderr.strip()} (this needs root, and `ip` and `tc` of iproute2)")


def measure(nodes: int, rate: str, burst: str) -> dict[str, Any]:
    """A job of one rank on each node."""
    with network(nodes, rate, burst):
        job = {"WORLD_SIZE": nodes, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": f"{NETWORK}.1", "MASTER_PORT": PORT}
        ranks = []
        for node in range(nodes):
            variables = {**job, "RANK": node, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1}
            words = ["ip", "netns", "exec", f"{NAME}{node}", sys.executable, __file__, "--rank"]
            environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
            pipe = subprocess.PIPE
            ranks.append(subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True))  # noqa: S603
        said = [rank.communicate(timeout=600) for rank in ranks]
        found = [line for line in said[0][0].splitlines() if line.startswith(MARK)]
        if not found:
            raise SystemExit("\n".join(errors for _, errors in said))
        return json.loads(found[0].removeprefix(MARK))


def page(found: list[dict[str, Any]], rate: str) -> str:
    """What was measured beside what is predicted."""
    points = [[Measured(one["ranks"], int(size), seconds) for size, seconds in one["sums"].items()] for one in found]
    link = fit_link("ring", points[0])
    lines = [
        f"Measured by `python tools/rank_network.py` on {processor()}, {available_cores()} cores: nodes are network"
        f" namespaces with links of {rate}; gloo. The link as fitted to {found[0]['ranks']} nodes:"
        f" {1e6 * link.latency:.0f} us a message, {8e-9 / link.seconds_per_byte:.2f} Gbit/s. Errors of at most"
        f" {ASKED:.0%} are asked for.",
        "",
        "| nodes | sum of | measured | predicted | error |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        _row(one.ranks, f"{one.size:,} B", one.seconds, link.sum_seconds(one.ranks, one.size))
        for some in points
        for one in some
    ]
    lines += ["", "| nodes | iteration of | measured | predicted | error |", "| ---: | --- | ---: | ---: | ---: |"]
    works: list[Work] = []
    for one in found:
        for told in one["works"]:
            sums = {int(size): count for size, count in told["sums"].items()}
            work = Work(told["name"], told["fixed"], told["shared"], sums)
            lines.append(_row(one["ranks"], work.name, told["seconds"], work.seconds(link, one["ranks"])))
            works += [work] if one is found[0] else []
    lines += [
        "",
        "Speed of n nodes to one, and of n times the batch, by the model: over these links by gloo, and by MPI over"
        f" links that are assumed, {1e6 * FAST.latency:g} us and {8e-9 / FAST.seconds_per_byte:g} Gbit/s.",
        "",
        "| | nodes | these, same batch | these, n batches | assumed, same batch | assumed, n batches |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for work in works:
        for nodes in NODES:
            cells = []
            for over in (link, FAST):
                grown = work.grown(nodes)
                cells += [work.speedup(over, nodes), nodes * work.computing(1) / grown.seconds(over, nodes)]
            lines.append(f"| {work.name} | {nodes} | " + " | ".join(f"{one:.1f}x" for one in cells) + " |")
    return "\n".join(lines)


def _row(nodes: int, name: str, measured: float, predicted: float) -> str:
    error = predicted / measured - 1
    return f"| {nodes} | {name} | {1e3 * measured:.3f} ms | {1e3 * predicted:.3f} ms | {error:+.0%} |"


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[2], help="how many (default: 2), the first for the fit"
    )
    parser.add_argument("--rate", default="1gbit", help="of each link, as tc writes it (default: 1gbit)")
    parser.add_argument("--burst", default="128kb", help="that a link lets through at once (default: 128kb)")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help=f"write the page between {BEGIN} and {END} of a file"
    )
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        measure_rank()
        return
    text = page([measure(nodes, arguments.rate, arguments.burst) for nodes in arguments.nodes], arguments.rate)
    if arguments.write is None:
        print(text)
        return
    document = arguments.write.read_text(encoding="utf-8")
    write_whole(arguments.write, with_section(document, BEGIN, END, text))


if __name__ == "__main__":
    main()
