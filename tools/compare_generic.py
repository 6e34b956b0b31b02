"""Train on built-in environments without their presets, as if they were somebody's own, by generic defaults.

    python tools/compare_generic.py run results.jsonl --jobs 2
    python tools/compare_generic.py write results.jsonl BENCHMARKS.md

Beside them stands the bare configuration, which is what an empty preset gives. Each run is a process of its own, on one
thread; runs that the file has already are not repeated. Seconds are what `learn` took of the processor, compiled.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from comparing import OURS, Job, command_line

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean

SEEDS, EPISODES = 5, 50
PLANTS = (
    "ChemicalReactor-v0", "HVACControl-v0", "PowerGrid-v0", "SteelAnnealing-v0", "SupplyChain-v0", "WaterTreatment-v0",
    "RobotAssembly-v0", "IndustrialBenchmark-v0",
)  # fmt: skip
CLASSICS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
STEPS = {
    "ppo": dict.fromkeys((*CLASSICS, "MinAtarBreakout-v1", *PLANTS), 300_000),
    "dqn": {"CartPole-v1": 50_000, "Acrobot-v1": 50_000, "MountainCar-v0": 120_000},
    "sac": {"Pendulum-v1": 10_000, "ChemicalReactor-v0": 20_000},
    "td3": {"Pendulum-v1": 10_000, "ChemicalReactor-v0": 20_000},
}
SETTINGS = ("configuration", "generic")


def jobs() -> Iterator[Job]:
    """Every run of the comparison, the quickest first."""
    for algorithm, environments in STEPS.items():
        for environment, steps in environments.items():
            for settings in SETTINGS:
                for seed in range(SEEDS):
                    yield {
                        "library": OURS, "settings": settings, "environment": environment, "algorithm": algorithm,
                        "seed": seed, "steps": steps,
                    }  # fmt: skip


def run_one(job: Job) -> Job:
    """Train and evaluate once."""
    import velocirl
    from velocirl.algorithms import load_algorithms
    from velocirl.engine.registry import find
    from velocirl.runs.processor import processor
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    algorithm, environment = job["algorithm"], find(job["environment"])
    presets: dict[str, Any] = {} if job["settings"] == "generic" else {algorithm: {}}
    own = dataclasses.replace(environment, id=f"Own{environment.id}", presets=presets)
    agent: Any = ALGORITHMS[algorithm](own, seed=job["seed"], threads=1, device="cpu")
    agent.prepare()
    start = time.process_time()
    agent.learn(job["steps"])
    seconds = time.process_time() - start
    mean = velocirl.evaluate(agent, episodes=EPISODES, seed=0).mean_return
    return {**job, "processor": processor(), "seconds": seconds, "return": mean}


def page(results: list[Job]) -> str:
    """A line for each pair of environment and algorithm: the bare configuration beside generic defaults."""
    lines = [
        "| environment | algorithm | steps | configuration alone | generic defaults | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    better = worse = 0
    for algorithm, environments in STEPS.items():
        for environment, steps in environments.items():
            cells, seconds, limits = [], [], []
            for settings in SETTINGS:
                wanted = (algorithm, environment, settings, steps)
                names = ("algorithm", "environment", "settings", "steps")
                runs = [one for one in results if tuple(one[name] for name in names) == wanted]
                if len(runs) < SEEDS:
                    break
                returns = np.array([one["return"] for one in runs])[:, None]
                low, high = (float(one[0]) for one in bootstrap(returns))
                cells.append(f"{float(interquartile_mean(returns)[0]):,.4g} ({low:,.4g} to {high:,.4g})")
                seconds.append(f"{np.median([one['seconds'] for one in runs]):.2g}")
                limits.append((low, high))
            if len(cells) < len(SETTINGS):
                continue
            better += limits[1][0] > limits[0][1]
            worse += limits[1][1] < limits[0][0]
            told = f"{environment} | {algorithm.upper()} | {steps:,} | {' | '.join(cells)} | {' / '.join(seconds)}"
            lines.append(f"| {told} |")
    where = ", ".join(sorted({one["processor"] for one in results}))
    return "\n".join(
        [
            *lines,
            "",
            f"Interquartile means of {SEEDS} seeds with 95% intervals (bootstrap), {EPISODES} deterministic episodes"
            f" each; processor seconds of `learn` on one thread, in the order of the columns, on {where}. Generic"
            f" defaults are wholly above the bare configuration in {better} of {len(lines) - 2} pairs, wholly below"
            f" in {worse}.",
        ]
    )


if __name__ == "__main__":
    command_line(__doc__ or "", jobs, run_one, page, "generic")
