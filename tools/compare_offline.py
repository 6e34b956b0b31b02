"""Learn from recorded data of several levels, and some of it by d3rlpy at equal updates, networks and batches.

    python tools/compare_offline.py run benchmarks/offline.jsonl --jobs 2
    python tools/compare_offline.py write benchmarks/offline.jsonl BENCHMARKS.md

The data is made first, below runs/offline-data, by one training for each environment with its preset. Scores are
normalised: 0 is what random actions return, 100 what the expert does who recorded the data. Each run is a process of
its own, on one thread; runs that the file has already are not repeated. d3rlpy needs a Python of its own, which
VELOCIRL_D3RLPY_PYTHON names (tools/d3rlpy_reads.py says how it is made); without it, its runs are left out.

`--only defaults` runs the algorithms with their default settings, but for smaller networks, on plants that do not ship
(those of the tests); `operator` and `trials` data are those of tools/fqe_agreement.py. Returns there are in units of
the reward.
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
from fqe_agreement import Plant, plants

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean
from velocirl.runs.intervals import exact_share

PEER, PEER_PYTHON = "d3rlpy", "VELOCIRL_D3RLPY_PYTHON"
ENVIRONMENTS = ("ChemicalReactor-v0", "HVACControl-v0", "Pendulum-v1")
LEVELS = ("expert", "medium", "mixed", "replay")
NAMES = {"bc": "BC", "td3-bc": "TD3+BC", "iql": "IQL", "cql": "CQL"}
UPDATES = {"bc": 10_000, "td3-bc": 10_000, "iql": 10_000, "cql": 3_000}
LEAST_CLONED = 95
SEEDS, EPISODES, TRANSITIONS = 5, 100, 100_000
DATA_SEED = 0  # of the training, the data, and the episodes by which the references and all learners are judged
SETTINGS: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256, "learning_rate": 1e-3}
OWN: dict[str, dict[str, Any]] = {"cql": {"samples": 4}}
COMPARED, PEER_UPDATES = ("Pendulum-v1", "replay"), {"td3-bc": 5_000, "iql": 5_000, "cql": 3_000}  # with d3rlpy
DEFAULTS = "defaults"  # the settings of runs on plants that do not ship
OWN_PLANTS, KINDS, RECORDED = ("TwoTanks-v0", "Tank-v0"), ("operator", "trials"), 250  # episodes of the controller
REFERENCES = ("controller", "random")
BARE = "td3-bc bare"  # with the critics that it had before: without layer norms
DEFAULT_UPDATES = {"bc": 5_000, "td3-bc": 5_000, BARE: 5_000, "iql": 5_000, "rebrac": 5_000, "cql": 2_000}
FOLDER = Path(__file__).parents[1] / "runs" / "offline-data"


def jobs() -> Iterator[Job]:
    """Every run of the comparison, seed by seed, so that what is there is of equal seeds whenever it stops."""
    for seed in range(SEEDS):
        for algorithm, updates in UPDATES.items():
            for environment in ENVIRONMENTS:
                for level in LEVELS:
                    yield job_of(OURS, environment, level, algorithm, seed, updates)
        for algorithm, updates in PEER_UPDATES.items():
            if updates != UPDATES[algorithm]:
                yield job_of(OURS, *COMPARED, algorithm, seed, updates)
            if PEER_PYTHON in os.environ:
                yield job_of(PEER, *COMPARED, algorithm, seed, updates)
        for plant in OWN_PLANTS:
            for kind in KINDS:
                for name, updates in DEFAULT_UPDATES.items():
                    yield {**job_of(OURS, plant, kind, name, seed, updates), "settings": DEFAULTS}
    for plant in OWN_PLANTS:
        for name in REFERENCES:
            yield {**job_of(OURS, plant, KINDS[0], name, 0, 0), "settings": DEFAULTS}


def job_of(library: str, environment: str, level: str, algorithm: str, seed: int, updates: int) -> Job:
    """One run."""
    return {
        "library": library, "environment": environment, "level": level, "algorithm": algorithm, "seed": seed,
        "steps": updates,
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
        if not missing:
            continue
        trained = train_levels(environment, seed=DATA_SEED)
        for level in missing:
            path, shared = path_of(environment, level), {"trained": trained, "expert": trained.expert}
            data = create_dataset(level, environment, steps=TRANSITIONS, path=path, seed=DATA_SEED, **shared)
            print(f"{path.name}: score {data.info.normalised(data.returns()).mean():.0f}", flush=True)


def run_one(job: Job) -> Job:
    """Train and evaluate once."""
    import velocirl
    from velocirl.algorithms import load_algorithms
    from velocirl.runs.processor import processor
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    if job.get("settings") == DEFAULTS:
        return run_default(job)
    data, algorithm = velocirl.Dataset.load(path_of(job["environment"], job["level"])), job["algorithm"]
    settings = {**SETTINGS, **OWN.get(algorithm, {}), "seed": job["seed"], "threads": 1, "device": "cpu"}
    if (job["environment"], job["level"]) == COMPARED and job["steps"] == PEER_UPDATES.get(algorithm):
        settings["critic_layer_norm"] = False  # as d3rlpy has it
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


def run_default(job: Job) -> Job:
    """Learn with default settings on a plant that does not ship, or judge its controller or random actions."""
    import velocirl
    from velocirl.controllers import Random
    from velocirl.runs.processor import processor
    from velocirl.training.persistence import ALGORITHMS

    plant, algorithm, seconds = own_plant(job["environment"]), job["algorithm"], 0.0
    model: Any = {"controller": plant.controller, "random": Random(DATA_SEED)}.get(algorithm)
    if model is None:
        data = plant.record(job["level"], DATA_SEED, RECORDED)
        settings: dict[str, Any] = {"hidden": SETTINGS["hidden"], "seed": job["seed"], "threads": 1, "device": "cpu"}
        if algorithm == BARE:
            settings["critic_layer_norm"] = False
        model = ALGORITHMS[algorithm.split()[0]](plant.env, data=data, **settings)
        model.prepare()
        start = time.process_time()
        model.learn(job["steps"])
        seconds = time.process_time() - start
    found = velocirl.evaluate(model, plant.env, EPISODES, DATA_SEED + 1000)
    assert found.costs is not None and found.costs.stopped is not None  # noqa: S101, PT018 - critical constraints
    return {
        **job, "processor": processor(), "seconds": seconds, "return": found.mean_return,
        "cost": float(found.costs.cost.mean()), "stops": int(np.sum(found.costs.stopped)),
    }  # fmt: skip


def own_plant(name: str) -> Plant:
    """Return a plant of the tests."""
    from heated_tank import make_tank  # pyright: ignore[reportMissingImports] - of the tests, as fqe_agreement finds them

    return Plant(make_tank(), (0, 1), (), ()) if name == "Tank-v0" else plants()[name]


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
    seeds: int

    @classmethod
    def of(cls, runs: list[Job]) -> Outcome:
        """The interquartile mean of the scores, its interval, and the median of the seconds."""
        scores = np.array([one["return"] for one in runs])[:, None]
        low, high = bootstrap(scores)
        seconds = float(np.median([one["seconds"] for one in runs]))
        return cls(float(interquartile_mean(scores)[0]), float(low[0]), float(high[0]), seconds, len(runs))

    def __str__(self) -> str:
        return f"{self.mean:.1f} ({self.low:.1f} to {self.high:.1f})"


def complete(results: list[Job], library: str, updates: dict[str, int]) -> dict[tuple[str, str, str], Outcome]:
    """By environment, level and algorithm, of the seeds with which everything was run for so many updates."""
    found: dict[tuple[str, str, str], list[Job]] = {}
    for one in results:
        if one["library"] == library and one["steps"] == updates.get(one["algorithm"]):
            found.setdefault((one["environment"], one["level"], one["algorithm"]), []).append(one)
    seeds = set(range(SEEDS)).intersection(*({one["seed"] for one in runs} for runs in found.values()))
    return {pair: Outcome.of([one for one in runs if one["seed"] in seeds]) for pair, runs in found.items() if seeds}


def page(results: list[Job]) -> str:
    """A line for each data set with all algorithms, what came of what is asked for, and ours beside d3rlpy's."""
    defaults = [one for one in results if one.get("settings") == DEFAULTS]
    results = [one for one in results if one not in defaults]
    ours, theirs = complete(results, OURS, UPDATES), complete(results, PEER, PEER_UPDATES)
    if not ours:
        return "No seed is complete yet."
    recorded = {(one["environment"], one["level"]): one["recorded"] for one in results}
    lines = [
        f"| environment | level | recorded | {' | '.join(NAMES.values())} |",
        "| --- | --- | ---: |" + " ---: |" * len(NAMES),
    ]
    asked: dict[str, list[bool]] = {"BC": [], "medium": [], "above": []}
    for environment in ENVIRONMENTS:
        for level in LEVELS:
            found = [ours[environment, level, one] for one in NAMES if (environment, level, one) in ours]
            if len(found) < len(NAMES):
                continue
            cloned, *others = found
            figures = [f"{recorded[environment, level]:.0f}", *map(str, found)]
            lines.append(f"| {environment} | {level} | {' | '.join(figures)} |")
            if level == "expert":
                asked["BC"].append(cloned.mean >= LEAST_CLONED)
            elif level == "medium":
                asked["medium"] += [one.high >= cloned.low for one in others]
            else:
                asked["above"] += [one.low > cloned.high for one in others]
    where = ", ".join(sorted({one["processor"] for one in results}))
    updates = ", ".join(f"{NAMES[one]} {count:,}" for one, count in UPDATES.items())
    bc, medium, above = (f"{sum(one)} of {len(one)}" for one in asked.values())
    lines += [
        "",
        f"Normalised scores (0 random actions, 100 the expert), interquartile means of {seeds_of(ours)} seeds with 95%"
        f" intervals (bootstrap), {EPISODES} deterministic episodes each; `recorded` is the mean score of the data's"
        f" episodes. {TRANSITIONS:,} transitions, networks of {SETTINGS['hidden'][0]}x{SETTINGS['hidden'][1]}, batches"
        f" of {SETTINGS['batch_size']}, updates: {updates}; on {where}. BC reaches {LEAST_CLONED} on `expert` in {bc};"
        f" on `medium` the interval of another reaches BC's in {medium}; on `mixed` and `replay` it is wholly above it"
        f" in {above}.",
    ]
    if theirs:
        head = [", ".join(COMPARED), "updates", "velocirl", PEER, "seconds"]
        lines += ["", f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
        beside = [one for one in results if (one["environment"], one["level"]) == COMPARED]
        same = complete(beside, OURS, PEER_UPDATES)
        for algorithm, count in PEER_UPDATES.items():
            own, other = same.get((*COMPARED, algorithm)), theirs.get((*COMPARED, algorithm))
            if own is not None and other is not None:
                seconds = f"{own.seconds:.0f} / {other.seconds:.0f}"
                lines.append(f"| {NAMES[algorithm]} | {count:,} | {own} | {other} | {seconds} |")
        lines += [
            "",
            f"{PEER}'s own learners on the same data with the same settings, {seeds_of(theirs)} seeds; processor"
            f" seconds of the training on one thread, ours and {PEER}'s.",
        ]
    if defaults:
        lines += ["", *defaults_table(defaults)]
    return "\n".join(lines)


def defaults_table(results: list[Job]) -> list[str]:
    """Return the table of default settings: medians and ranges of the seeds, emergency stops of all episodes."""
    lines = ["| plant | data | policy | updates | seeds | return | mean cost | emergency stops |",
             "| --- | --- | --- |" + " ---: |" * 5]  # fmt: skip
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for one in results:
        groups.setdefault((one["environment"], one["level"], one["algorithm"]), []).append(one)
    names = {**NAMES, "rebrac": "ReBRAC", BARE: "TD3+BC, critics without layer norms"}
    for (plant, kind, algorithm), runs in sorted(groups.items(), key=lambda one: place_of(*one[0])):
        returns, stops, episodes = (
            [one["return"] for one in runs],
            sum(one["stops"] for one in runs),
            EPISODES * len(runs),
        )
        low, high = exact_share(stops, episodes)
        updates = f"{runs[0]['steps']:,}" if runs[0]["steps"] else ""
        spread = f" ({min(returns):.1f} to {max(returns):.1f})" if updates else ""
        lines.append(
            f"| {plant} | {kind if updates else ''} | {names.get(algorithm, algorithm)} | {updates} |"
            f" {len(runs) if updates else ''} |"
            f" {np.median(returns):.1f}{spread} | {np.mean([one['cost'] for one in runs]):.1f} |"
            f" {stops} of {episodes} ({low:.1%} to {high:.1%}) |"
        )
    where = ", ".join(sorted({one["processor"] for one in results}))
    width = "x".join(map(str, SETTINGS["hidden"]))
    return [
        *lines,
        "",
        f"Default settings but for networks of {width}, on {where}. Medians and ranges of the seeds, {EPISODES}"
        f" deterministic episodes each; costs are violations per episode. Emergency stops are of all episodes, with the"
        f" exact 95% interval. Data of {RECORDED} episodes of the controller with noise (`operator`), or of random"
        f" actions, the controller, and a mixture of it with a dangerous action, twice as many steps (`trials`).",
    ]


def place_of(plant: str, kind: str, algorithm: str) -> tuple[int, int, int]:
    """Return where a row of that table stands."""
    order = [*REFERENCES, *DEFAULT_UPDATES]
    where = order.index(algorithm)
    return OWN_PLANTS.index(plant), -1 if where < len(REFERENCES) else KINDS.index(kind), where


def seeds_of(outcomes: dict[tuple[str, str, str], Outcome]) -> int:
    """Of how many seeds outcomes are, which is the same for all."""
    return next(iter(outcomes.values())).seeds


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and DEFAULTS not in sys.argv:
        make_data()
    command_line(__doc__ or "", jobs, run_one, page, "offline")
