"""Train with 1, 2 and 4 ranks at equal steps, to see whether they learn the same.

    python tools/rank_learning.py --jobs 2 --write BENCHMARKS.md

PPO on CartPole-v1 and SAC on Pendulum-v1 by their presets, ranks of mpirun with one thread each, 5 seeds. Ranks divide
the copies among them, and of SAC the memory too: a batch has rows from each. Shown are the returns of episodes as they
ended at a quarter, a half and the end of training, and of the trained policy, by interquartile mean with its 95%
interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rank_scaling import MARK, job_environment, mpirun

from velocirl.bench.files import with_section, write_whole
from velocirl.runs.curves.comparing import bootstrap, interquartile_mean

PAIRS = (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1"))
RANKS, SEEDS, POINTS = (1, 2, 4), 5, (0.25, 0.5, 1.0)
EPISODES = 100


def train(algorithm: str, environment: str, seed: int) -> None:
    """What each rank does; the first one says what came of it."""
    import velocirl
    from velocirl.algorithms import load_algorithms
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    agent: Any = ALGORITHMS[algorithm](environment, seed=seed, threads=1, device="cpu")
    total = agent.preset()["total_steps"]
    with tempfile.TemporaryDirectory() as place:
        agent.learn(total, run_dir=place, progress=False)
        if agent.company is not None and agent.company.ranks.rank:
            return
        rows = velocirl.read_metrics(place)
    steps, returns = rows["time/total_timesteps"], rows["rollout/ep_rew_mean"]
    known = ~np.isnan(returns)
    curve = np.interp([share * total for share in POINTS], steps[known], returns[known])
    trained = velocirl.evaluate(agent, episodes=EPISODES, seed=0).mean_return
    print(MARK + json.dumps([*curve.tolist(), trained]), flush=True)


def start(algorithm: str, environment: str, ranks: int, seed: int) -> list[float]:
    """One training in processes of its own."""
    own = [__file__, "--train", algorithm, environment, str(seed)]
    job = subprocess.run(  # noqa: S603
        [*mpirun(ranks, shared=True), *own], env=job_environment(), capture_output=True, text=True, check=False
    )
    if job.returncode:
        raise SystemExit(f"{algorithm} with {ranks} ranks and seed {seed}: {job.stderr}")
    print(f"{algorithm} {ranks} ranks seed {seed}: {job.stdout.strip()}", flush=True)
    return json.JSONDecoder().raw_decode(job.stdout.split(MARK)[1])[0]


def page(jobs: int) -> str:
    """A line for each algorithm and number of ranks."""
    asked = [(*pair, ranks, seed) for pair in PAIRS for ranks in RANKS for seed in range(SEEDS)]
    with ThreadPoolExecutor(jobs) as pool:
        found = dict(zip(asked, pool.map(lambda one: start(*one), asked), strict=True))
    shares = [f"{share:.0%}" for share in POINTS]
    lines = [f"| | ranks | {' | '.join(shares)} | trained |", "| --- " + "| ---: " * (len(POINTS) + 2) + "|"]
    for algorithm, environment in PAIRS:
        for ranks in RANKS:
            values = np.array([found[algorithm, environment, ranks, seed] for seed in range(SEEDS)])
            low, high = bootstrap(values)
            cells = [
                f"{mean:.0f} ({at_least:.0f} to {at_most:.0f})"
                for mean, at_least, at_most in zip(interquartile_mean(values), low, high, strict=True)
            ]
            lines.append(f"| {algorithm.upper()}, {environment} | {ranks} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train all, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time (default: 1)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table between the markers of a file")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        algorithm, environment, seed = arguments.train
        train(algorithm, environment, int(seed))
        return
    table = page(arguments.jobs)
    if arguments.write is None:
        print(table)
        return
    begin, end = "<!-- rank-learning:begin -->", "<!-- rank-learning:end -->"
    document = arguments.write.read_text(encoding="utf-8")
    write_whole(arguments.write, with_section(document, begin, end, table))


if __name__ == "__main__":
    main()
