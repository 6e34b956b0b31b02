"""Learn from recorded data of several levels, and some of it by d3rlpy at equal updates, networks and batches.

    python tools/compare_offline.py run benchmarks/offline.jsonl --jobs 2
    python tools/compare_offline.py write benchmarks/offline.jsonl BENCHMARKS.md

The data is made first, below runs/offline-data, by one training for each environment with its preset. Scores are
normalised: 0 is what random actions return, 100 what the expert does who recorded the data. Each run is a process of
its own, on one thread; runs that the file has already are not repeated. d3rlpy needs a Python of its own, which
VELOCIRL_D3RLPY_PYTHON names (tools/d3rlpy_reads.py says how it is made); without it, its runs are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from comparing import OURS, Job, command_line

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean

PEER, PEER_PYTHON = "d3rlpy", "VELOCIRL_D3RLPY_PYTHON"
ENVIRONMENTS = ("ChemicalReactor-v0", "HVACControl-v0", "Pendulum-v1")
LEVELS = ("expert", "medium", "mixed", "replay")
NAMES = {"bc": "BC", "td3-bc": "TD3+BC", "iql": "IQL", "cql": "CQL"}
UPDATES = {"bc": 10_000, "td3-bc": 10_000, "iql": 10_000, "cql": 5_000}
SEEDS, EPISODES, TRANSITIONS = 5, 100, 100_000
DATA_SEED = 0  # of the training, the data, and of the episodes by which the references and all others are judged
SETTINGS: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256, "learning_rate": 1e-3}
OWN: dict[str, dict[str, Any]] = {"cql": {"samples": 4}}
COMPARED = ("Pendulum-v1", "replay")  # with d3rlpy
FOLDER = Path(__file__).parents[1] / "runs" / "offline-data"


def jobs() -> Iterator[Job]:
    """Every run of the comparison, the slowest first."""
    for algorithm in reversed(NAMES):
        for environment in ENVIRONMENTS:
            for level in LEVELS:
                for seed in range(SEEDS):
                    yield job_of(OURS, environment, level, algorithm, seed)
    if PEER_PYTHON in os.environ:
        for algorithm in ("td3-bc", "iql", "cql"):
            for seed in range(SEEDS):
                yield job_of(PEER, *COMPARED, algorithm, seed)


def job_of(library: str, environment: str, level: str, algorithm: str, seed: int) -> Job:
    """One run."""
    return {
        "library": library, "environment": environment, "level": level, "algorithm": algorithm, "seed": seed,
        "steps": UPDATES[algorithm],
    }  # fmt: skip


def path_of(environment: str, level: str) -> Path:
    """The file of a data set."""
    return FOLDER / f"{environment}-{level}.vds"


def make_data() -> None:
    """Record the data sets that are missing; all levels of an environment are of the same training."""
    from velocirl.datasets.levels import create_dataset, train_levels

    FOLDER.mkdir(parents=True, exist_ok=True)
    for environment in ENVIRONMENTS:
        missing = [level for level in LEVELS if not path_of(environment, level).exists()]
        trained = train_levels(environment, seed=DATA_SEED) if missing else None
        for level in missing:
            path = path_of(environment, level)
            data = create_dataset(level, environment, steps=TRANSITIONS, path=path, seed=DATA_SEED, trained=trained)
            print(f"{path.name}: score {data.info.normalised(data.returns()).mean():.0f}", flush=True)


def run_one(job: Job) -> Job:
    """Train and evaluate once."""
    import velocirl
    from velocirl.algorithms import load_algorithms
    from velocirl.runs.processor import processor
    from velocirl.training.agent import ALGORITHMS

    load_algorithms()
    data, algorithm = velocirl.Dataset.load(path_of(job["environment"], job["level"])), job["algorithm"]
    settings = {**SETTINGS, **OWN.get(algorithm, {}), "seed": job["seed"], "threads": 1, "device": "cpu"}
    agent: Any = ALGORITHMS[algorithm](job["environment"], data=data, **settings)
    if job["library"] == OURS:
        agent.prepare()
        start = time.process_time()
        agent.learn(job["steps"])
        seconds, model = time.process_time() - start, agent
    else:
        seconds, model = train_peer(job, data, agent.config)
    found = velocirl.evaluate(model, job["environment"], EPISODES, DATA_SEED).mean_return
    recorded = float(data.info.normalised(data.returns()).mean())
    return {
        **job, "processor": processor(), "seconds": seconds, "return": float(data.info.normalised(found)),
        "recorded": recorded,
    }  # fmt: skip


class TorchScript:
    """A policy that d3rlpy left."""

    def __init__(self, path: Path) -> None:
        import torch

        self._torch, self._policy = torch, torch.jit.load(str(path))

    def predict(self, observation: Any, **_: Any) -> tuple[Any, None]:
        """Its greedy actions."""
        with self._torch.inference_mode():
            return self._policy(self._torch.from_numpy(np.array(observation, np.float32))).numpy(), None


def train_peer(job: Job, data: Any, config: Any) -> tuple[float, TorchScript]:
    """Let d3rlpy learn in its own Python with the settings of our agent; gives processor seconds and its policy."""
    from velocirl.datasets.minari.exporting import export_minari

    with tempfile.TemporaryDirectory() as folder:
        exported, policy = export_minari(data, Path(folder) / "data-v0"), Path(folder) / "policy.pt"
        bounds = data.info.action_space
        task = {
            **job, "path": str(exported), "policy": str(policy), "low": bounds.low.tolist(),
            "high": bounds.high.tolist(), "settings": {**vars(config), "hidden": list(config.hidden)},
        }  # fmt: skip
        script = Path(__file__).with_name("d3rlpy_trains.py")
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [os.environ[PEER_PYTHON], str(script), json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, env=own, cwd=folder, check=False)  # noqa: S603
        if done.returncode != 0:
            raise RuntimeError(f"d3rlpy failed: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])["seconds"], TorchScript(policy)


@dataclass(frozen=True)
class Outcome:
    """What the seeds of a pair came to."""

    mean: float
    low: float
    high: float
    seconds: float

    @classmethod
    def of(cls, runs: list[Job]) -> Outcome | None:
        """The interquartile mean of the scores, its interval, and the median of the seconds; None before all is run."""
        if len(runs) < SEEDS:
            return None
        scores = np.array([one["return"] for one in runs])[:, None]
        low, high = bootstrap(scores)
        seconds = float(np.median([one["seconds"] for one in runs]))
        return cls(float(interquartile_mean(scores)[0]), float(low[0]), float(high[0]), seconds)

    def __str__(self) -> str:
        return f"{self.mean:.1f} ({self.low:.1f} to {self.high:.1f})"


def page(results: list[Job]) -> str:
    """A line for each data set with all algorithms, what came of what is asked for, and ours beside d3rlpy's."""

    def outcome(library: str, environment: str, level: str, algorithm: str) -> Outcome | None:
        wanted = {"library": library, "environment": environment, "level": level, "algorithm": algorithm}
        return Outcome.of([one for one in results if wanted.items() <= one.items()])

    lines = [
        f"| environment | level | recorded | {' | '.join(NAMES.values())} |",
        "| --- | --- | ---: |" + " ---: |" * len(NAMES),
    ]
    asked: dict[str, list[bool]] = {"BC": [], "medium": [], "above": []}
    for environment in ENVIRONMENTS:
        for level in LEVELS:
            found = {name: outcome(OURS, environment, level, one) for one, name in NAMES.items()}
            own = [one for one in results if (one["environment"], one["level"]) == (environment, level)]
            cloned, others = found["BC"], [found[name] for name in list(NAMES.values())[1:]]
            if cloned is None or any(one is None for one in others):
                continue
            lines.append(
                f"| {environment} | {level} | {own[0]['recorded']:.0f} | {' | '.join(map(str, found.values()))} |"
            )
            if level == "expert":
                asked["BC"].append(cloned.mean >= 95)
            elif level == "medium":
                asked["medium"] += [one.high >= cloned.low for one in others if one]
            else:
                asked["above"] += [one.low > cloned.high for one in others if one]
    where = ", ".join(sorted({one["processor"] for one in results}))
    updates = ", ".join(f"{NAMES[one]} {count:,}" for one, count in UPDATES.items())
    bc, medium, above = (f"{sum(one)} of {len(one)}" for one in asked.values())
    lines += [
        "",
        f"Normalised scores (0 random actions, 100 the expert), interquartile means of {SEEDS} seeds with 95% intervals"
        f" (bootstrap), {EPISODES} deterministic episodes each; `recorded` is the mean score of the data's episodes."
        f" {TRANSITIONS:,} transitions, networks of {SETTINGS['hidden'][0]}x{SETTINGS['hidden'][1]}, batches of"
        f" {SETTINGS['batch_size']}, updates: {updates}; on {where}. BC reaches 95 on `expert` in {bc}; on `medium` the"
        f" interval of another reaches BC's in {medium}; on `mixed` and `replay` it is wholly above BC's in {above}.",
    ]
    peers = {one: (outcome(OURS, *COMPARED, one), outcome(PEER, *COMPARED, one)) for one in ("td3-bc", "iql", "cql")}
    if any(theirs is not None for _, theirs in peers.values()):
        head = [", ".join(COMPARED), "updates", "velocirl", PEER, "seconds"]
        lines += ["", f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
        for algorithm, (ours, theirs) in peers.items():
            if ours is not None and theirs is not None:
                seconds = f"{ours.seconds:.0f} / {theirs.seconds:.0f}"
                lines.append(f"| {NAMES[algorithm]} | {UPDATES[algorithm]:,} | {ours} | {theirs} | {seconds} |")
        lines += ["", f"Processor seconds of the training on one thread, ours and {PEER}'s, with equal settings."]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        make_data()
    command_line(__doc__ or "", jobs, run_one, page, "offline")
