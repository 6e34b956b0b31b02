"""Runs that are killed at random moments, and resumed: each must end as if nobody had killed it, bit for bit.

Every algorithm is trained by the command `velocirl train`, once undisturbed. Then it is trained again and killed with
SIGKILL after a random time, while it starts, learns or saves; `velocirl resume` goes on and is killed in its turn. In
the end arrays, document and figures (but for the time) are compared with those of the undisturbed run.

Ranks of an MPI job begin new episodes when they go on. So there one random rank is killed, which must end the others,
and two copies of what it left are resumed: they must end alike.

    python tools/kill_loop.py --kills 200 --seed 0
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from small_agents import SmallAgent, small_agents

from velocirl.runs.config_file import as_toml
from velocirl.runs.directory import Run, open_run

COMMAND = (sys.executable, "-c", "from velocirl.cli.main import main; main()")
SECONDS = 2.5  # that an undisturbed run learns for
CHECKPOINTS = 30
KILLS = 4  # of a run at the most, before it may go on to its end
RANKS = 2
LIMIT = 120.0  # seconds that a command may take
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
# Open MPI warns of root and of more ranks than cores; here neither matters.
MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Subject:
    """A kind of run that is killed again and again."""

    def __init__(self, label: str, settings: dict[str, Any], home: Path, launch: tuple[str, ...] = ()) -> None:
        self.label, self._home, self._launch = label, home, launch
        self._config = home / f"{''.join(one if one.isalnum() else '-' for one in label)}.toml"
        self._config.write_text(as_toml(settings))
        self._count = 0

    def new_place(self) -> Path:
        """Where the next run goes."""
        self._count += 1
        return self._config.with_suffix(f".{self._count}")

    def begin(self, place: Path) -> subprocess.Popen[str]:
        """Train in a new run, or go on with the one that is there."""
        known = (place / "run.json").exists()
        if not known:
            shutil.rmtree(place, ignore_errors=True)  # killed before there was anything to go on with
        wanted = ["resume", str(place)] if known else ["train", "--config", str(self._config), "--run-dir", str(place)]
        return subprocess.Popen(  # noqa: S603 - our own command
            [*self._launch, *COMMAND, *wanted, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **MPI_SETTINGS, "VELOCIRL_HOME": str(self._home), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def finish(self, place: Path) -> Run:
        """Let a run go on to its end."""
        process = self.begin(place)
        said, _ = process.communicate(timeout=LIMIT)
        run = open_run(place)
        if process.returncode != 0 or run.description.status != "finished":
            raise AssertionError(f"{self.label}: exit code {process.returncode}, {run.description.status}: {said}")
        return run


def subjects(home: Path, only: str) -> Iterator[Subject]:
    """All kinds of runs that one process trains."""
    for agent in small_agents(only):
        if "overlap" not in agent.special:  # what a Gymnasium environment is in the midst of cannot be saved
            yield Subject(agent.label, _plan(agent), home)


def mpi_subjects(home: Path) -> list[Subject]:
    """Jobs of ranks, where there is MPI: of a table and of a network."""
    if MPIRUN is None or importlib.util.find_spec("mpi4py") is None:
        return []
    steps = {"total_steps": 20_000_000, "checkpoint_every": 500_000}
    table = {"environment": "TicTacToe-v1", "algorithm": "q-learning", "runtime": "mpi", "seed": 0, **steps}
    plan = {"total_steps": 400_000, "checkpoint_every": 20_000, "num_envs": 8, "horizon": 32, "device": "cpu"}
    network = {
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "runtime": "mpi",
        "device": "cpu",
        "threads": 1,
        **plan,
    }
    launch = (MPIRUN, "-n", str(RANKS))
    kinds = {"q-learning on MPI ranks": table, "ppo on MPI ranks": {**network, "seed": 0}}
    return [Subject(label, settings, home, launch) for label, settings in kinds.items()]


def _plan(agent: SmallAgent) -> dict[str, Any]:
    """The settings of a run that learns for some seconds."""
    trial: Any = agent.make()
    trial.learn(500)
    began, steps = time.perf_counter(), trial.steps
    while time.perf_counter() - began < 0.3:
        trial.learn(500)
    total = int((trial.steps - steps) / (time.perf_counter() - began) * SECONDS)
    plan = {"total_steps": total, "checkpoint_every": max(total // CHECKPOINTS, 1)}
    return {"environment": agent.environment, "algorithm": agent.algorithm, **plan, **agent.settings}


def differences(run: Run, whole: Run) -> list[str]:
    """What is not the same in two runs that came to their ends."""
    one, other = (each.checkpoints().latest().state for each in (run, whole))
    found = [] if one.document == other.document else ["the document"]
    for name in sorted(one.arrays.keys() | other.arrays.keys()):
        pair = one.arrays.get(name), other.arrays.get(name)
        if pair[0] is None or pair[1] is None or pair[0].tobytes() != pair[1].tobytes():
            found.append(name)
    rows, wanted = (
        [{name: figure for name, figure in row.items() if not name.startswith("time/")} for row in each.rows()]
        for each in (run, whole)
    )
    if rows != wanted:
        found.append(f"figures ({len(rows)} rows, {len(wanted)} in the undisturbed run)")
    return found


def kill_some(subject: Subject, place: Path, draw: random.Random, seconds: float) -> int:
    """Train in a place and kill that at random moments; how often it was killed before it came to its end."""
    kills = 0
    while kills < KILLS:
        process = subject.begin(place)
        try:
            process.wait(draw.uniform(0.0, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
            process.communicate()
            continue
        said, _ = process.communicate()
        if process.returncode != 0:
            raise AssertionError(f"{subject.label}: exit code {process.returncode}: {said}")
        break
    return kills


def kill_ranks(subject: Subject, draw: random.Random) -> list[str]:
    """Kill one rank of a job at a random moment; what is not the same in two runs that go on from there."""
    place, twin = subject.new_place(), subject.new_place()
    job = subject.begin(place)
    while not any((place / "checkpoints").glob("step_*")):
        if job.poll() is not None:
            raise AssertionError(f"{subject.label}: it ended early: {job.communicate()[0]}")
        time.sleep(0.01)
    time.sleep(draw.uniform(0.0, 0.5))
    ranks = [one for one in psutil.Process(job.pid).children(recursive=True) if "python" in one.name()]
    os.kill(draw.choice(ranks).pid, signal.SIGKILL)
    job.communicate(timeout=30)
    if job.returncode == 0:
        raise AssertionError(f"{subject.label}: a rank was killed, and the job says that all is well")
    if left := psutil.wait_procs(ranks, timeout=10)[1]:
        raise AssertionError(f"{subject.label}: {len(left)} ranks live on")
    shutil.copytree(place, twin)
    return differences(subject.finish(place), subject.finish(twin))


def run(kills: int, seed: int, only: str = "") -> list[str]:
    """Kill so often, all kinds in turn; what was not as it should be."""
    draw, done, wrong, begun = random.Random(seed), 0, [], time.monotonic()  # noqa: S311 - moments, not secrets
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        kinds = [(one, *_undisturbed(one)) for one in subjects(home, only)]
        jobs = [] if only else mpi_subjects(home)
        for ranks in jobs:
            ranks.finish(ranks.new_place())  # which compiles
        while done < kills:
            for kind, whole, seconds in kinds:
                place = kind.new_place()
                done += kill_some(kind, place, draw, seconds)
                found = differences(kind.finish(place), whole)
                wrong += [f"{kind.label} in {place.name}: {', '.join(found)} differ"] if found else []
                shutil.rmtree(place)
                if done >= kills:
                    break
            for ranks in jobs:
                found = kill_ranks(ranks, draw)
                done += 1
                wrong += [f"{ranks.label}: {', '.join(found)} differ"] if found else []
            left = (time.monotonic() - begun) / max(done, 1) * max(kills - done, 0)
            print(f"{done} of {kills} kills, about {left:.0f} s left; {len(wrong)} differ", flush=True)
    return wrong


def _undisturbed(subject: Subject) -> tuple[Run, float]:
    """A run that nobody kills, and the seconds that one takes where everything is compiled."""
    subject.finish(subject.new_place())
    began = time.monotonic()
    run = subject.finish(subject.new_place())
    return run, time.monotonic() - began


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="How often something is killed")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the moments")
    parser.add_argument("--only", default="", metavar="AGENT", help="Only runs of these agents, such as dqn")
    given = parser.parse_args()
    wrong = run(given.kills, given.seed, given.only)
    for line in wrong:
        print(line)
    print(f"{given.kills} kills: {'all runs ended as if there had been none' if not wrong else f'{len(wrong)} differ'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
