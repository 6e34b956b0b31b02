"""Speed tables in README.md, written from one run: each value with its peers and its command.

CPU and GPU values have separate tables, since they come from different machines. A run writes the table of its own
machine; the other one is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from velocirl.bench.files import read_marked, with_section, write_whole
from velocirl.bench.machine.facts import ABSENT, Machine
from velocirl.bench.reports.markdown import one_line, table
from velocirl.bench.reports.rivals import times_as_good
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.statistics import CONFIDENCE
from velocirl.bench.units import TIMES

TITLE = "Speeds"


@dataclass(frozen=True)
class Speed:
    """Table row: a benchmark, the implementation it shows, and those it is compared with; names are patterns."""

    what: str
    benchmark: str
    contestant: str = "velocirl*"  # the best, if several match
    beside: str = ""  # our implementations shown as ratios; peers always are
    also: str = ""  # our implementations shown as values


ON_CORES = (
    Speed("PPO, shared 64x64 network, 4096 copies x 32 steps, 4 epochs", "ppo_4_epochs"),
    Speed("PPO, the same network and copies, 1 epoch", "ppo_1_epoch"),
    Speed("arithmetic of PPO with 4 epochs, beside a matrix product's", "ppo_share_of_peak", beside="NumPy*"),
    Speed("DQN, one copy, 64x64, an update of 32 transitions every 4 steps", "dqn_cartpole"),
    Speed("SAC on Pendulum, 256x256, an update of 256 transitions for each step", "sac_pendulum"),
    Speed("arithmetic of SAC on Pendulum, beside a matrix product's", "sac_share_of_peak", beside="NumPy*"),
    Speed("process start to CartPole solved by PPO, compiled code from the cache", "time_to_solve"),
    Speed("first iteration of PPO, nothing compiled yet", "training_start", "cold*", also="warm*"),
    Speed("process start to a step of 4096 copies, nothing compiled yet", "first_step", "*cold*", also="*warm*"),
    Speed("Q-learning of TicTacToe, a table of all boards, one core", "q_learning", "velocirl, dense table"),
    Speed("Q-learning of TicTacToe by threads that share a table", "q_learning_threads", "* threads", "serial"),
    Speed("Q-learning in Gymnasium, 20 us a step, by processes", "q_learning_processes", "* processes", "1 *"),
    Speed("Q-learning, a sparse table of 10M states, one core", "sparse_table", "sparse table", also="dense table"),
    Speed("256 transitions from a million, uniform", "replay_sample"),
    Speed("256 transitions from a million by priority, with new priorities", "replay_prioritised", "velocirl"),
    Speed("one observation through `predict`, 64x64", "predict_one"),
    Speed("4096 copies through `VectorEnv.step`, one thread", "cartpole_4096", "velocirl, 1 thread"),
    Speed("64 copies through `VectorEnv.step`", "cartpole_64"),
    Speed("random actions in one compiled loop, one core", "random_loop", "velocirl, 1 thread", also="* threads"),
    Speed("memory of a copy", "bytes_per_copy", "arrays*"),
)
ON_GPU = (
    Speed("PPO, shared 64x64 network, 4096 copies x 32 steps, 1 epoch", "cuda_ppo_4096"),
    Speed("PPO, the same network, 16384 copies x 64 steps, 1 epoch", "cuda_ppo_16384"),
    Speed("PPO, the same network, 65536 copies x 32 steps, 1 epoch", "cuda_ppo_65536"),
    Speed("CartPole solved by PPO, after warm-up", "cuda_time_to_solve"),
    Speed("DQN, 4096 copies, 64x64, an update of 4096 for each of their steps", "cuda_dqn", "velocirl", "*CPU"),
    Speed("SAC on Pendulum, 1024 copies, 256x256, an update of 4096 likewise", "cuda_sac", "velocirl", "*CPU"),
    Speed("Q-learning of TicTacToe, 65,536 games", "cuda_q_learning", "65,536 games", "one core*"),
    Speed("Q-learning of TicTacToe, a million games", "cuda_q_learning", "1,048,576 games", "one core*"),
    Speed("random actions, a million copies, many steps in a launch", "cuda_loop", "*fused", also="*launch*"),
)


def place(machine: Machine) -> tuple[str, str, Sequence[Speed]]:
    """Return the markers and the rows of the table that a run on this machine writes."""
    name, rows = ("gpu-speeds", ON_GPU) if machine.gpu else ("speeds", ON_CORES)
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->", rows


def write_speeds(path: Path, report: Report, together: str = "") -> bool:
    """Write this machine's table into the file; returns whether any of its rows was measured.

    `together` precedes it: a comment that names another file written by the same run.
    """
    begin, end, _ = place(report.machine)
    lines = measured_speeds(report)
    if lines:
        headings = ("CartPole, where nothing else is said", "velocirl", "beside", "command")
        told = [together, _circumstances(report), "", *table(headings, lines, "llll")]
        write_whole(path, with_section(read_marked(path, begin, end, TITLE), begin, end, "\n".join(told)))
    return bool(lines)


def measured_speeds(report: Report) -> list[tuple[str, str, str, str]]:
    """Return the measured rows of this machine's table."""
    return [line for speed in place(report.machine)[2] if (line := _row(report, speed)) is not None]


def _circumstances(report: Report) -> str:
    machine, cores = report.machine, report.machine.cores
    where = f"{cores} core{'s' if cores != 1 else ''} ({machine.processor})"
    where = f"{machine.gpu}, beside {where}" if machine.gpu else where
    names = "python", "numba", "jax", "stable_baselines3", "torch"
    versions = [f"{name} {machine.versions[name]}" for name in names if machine.versions.get(name, ABSENT) != ABSENT]
    commit = f", commit {machine.commit[:7]}" if machine.commit else ""
    return one_line(
        f"{where}; {', '.join(versions)}; {report.started.partition('T')[0]}{commit}. Medians of one run of"
        f" `{report.command}` with their {CONFIDENCE:.0%} intervals, peers in the same run."
        + "".join(f" Careful: {warning}." for warning in machine.warnings)
    )


def _row(report: Report, speed: Speed) -> tuple[str, str, str, str] | None:
    """Format the row of a speed; None if it was not measured."""
    result = next((result for result in report.results if result.name == speed.benchmark), None)
    told = None if result is None else _told(result, speed)
    if result is None or told is None:
        return None
    others = [one for one in result.contestants if one.samples and one.name != told.name]
    beside = []
    for one in others:
        times = times_as_good(result, told, one) if one.peer or fnmatchcase(one.name, speed.beside) else None
        if times is not None:
            beside.append(f"{TIMES.say(times.median)} {one.name}")
    beside += [f"{one.name}: {_figure(result, one)}" for one in others if fnmatchcase(one.name, speed.also)]
    return speed.what, _figure(result, told), "; ".join(beside), f"`velocirl bench {speed.benchmark} --peers`"


def _told(result: Result, speed: Speed) -> Measured | None:
    """Return our implementation that matches; the best, if several do."""
    sign = 1.0 if result.unit.more_is_better else -1.0
    meant = [one for one in result.contestants if not one.peer and fnmatchcase(one.name, speed.contestant)]
    figures = [(sign * one.estimate.median, one) for one in meant if one.estimate is not None]
    return max(figures, key=lambda figure: figure[0])[1] if figures else None


def _figure(result: Result, one: Measured) -> str:
    found = one.estimate
    assert found is not None  # noqa: S101 - for the type checker: there are samples
    interval = "" if found.low == found.high else f" ({result.unit.say_interval(found)})"
    return f"{result.unit.say(found.median)}{interval}"
