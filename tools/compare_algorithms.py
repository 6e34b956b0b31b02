"""Train every algorithm on every built-in environment that it fits, and write the page that compares them.

    python tools/compare_algorithms.py run results.jsonl --jobs 2
    python tools/compare_algorithms.py write results.jsonl BENCHMARKS.md

Each run is a process of its own, on one thread; runs that the file has already are not repeated, so that an interrupted
comparison goes on where it was. Seconds are those of `learn`, with everything compiled; Stable-Baselines3 trains
Gymnasium's own classics for as many steps, with settings that its own zoo of trained agents uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from comparing import OURS, PEER, command_line

import velocirl
from velocirl.algorithms import load_algorithms
from velocirl.engine.registry import find
from velocirl.runs.processor import processor
from velocirl.training.persistence import ALGORITHMS

SEEDS, PEER_SEEDS, EPISODES = 5, 3, 100
COMPARED = ("ppo", "dqn", "sac", "td3")
WIDE = {"net_arch": [256, 256]}
PEERS: dict[tuple[str, str], dict[str, Any]] = {
    ("CartPole-v1", "ppo"): {
        "num_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": 1e-3,
    },
    ("CartPole-v1", "dqn"): {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04, "policy_kwargs": WIDE,
    },
    ("Acrobot-v1", "ppo"): {"num_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "n_epochs": 4},
    ("Acrobot-v1", "dqn"): {
        "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0,
        "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1, "exploration_fraction": 0.12,
        "exploration_final_eps": 0.1, "policy_kwargs": WIDE,
    },
    ("MountainCar-v0", "ppo"): {"num_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "n_epochs": 4},
    ("MountainCar-v0", "dqn"): {
        "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
        "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07, "policy_kwargs": WIDE,
    },
    ("Pendulum-v1", "ppo"): {"num_envs": 4, "n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3},
    ("Pendulum-v1", "sac"): {"learning_rate": 1e-3},
    ("Pendulum-v1", "td3"): {"learning_rate": 1e-3},
}  # fmt: skip


def jobs() -> Iterator[dict[str, Any]]:
    """Every run of the comparison."""
    load_algorithms()
    for name in velocirl.list_envs():
        environment = find(name)
        for algorithm in COMPARED:
            preset = environment.presets.get(algorithm)
            if preset is None:
                continue
            for seed in range(SEEDS):
                job = {"environment": name, "algorithm": algorithm, "seed": seed, "steps": int(preset["total_steps"])}
                yield {"library": OURS, **job}
                if (name, algorithm) in PEERS and seed < PEER_SEEDS:
                    yield {"library": PEER, **job}


def slowest_first() -> list[dict[str, Any]]:
    """The runs in an order in which none is waited for alone in the end."""
    return sorted(jobs(), key=lambda one: (one["library"] != OURS, one["algorithm"] not in ("sac", "td3")))


def run_one(job: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate once."""
    return {**job, "processor": processor(), **(train_ours(job) if job["library"] == OURS else train_peer(job))}


def train_ours(job: dict[str, Any]) -> dict[str, Any]:
    """Train an agent of ours by its preset."""
    load_algorithms()
    agent: Any = ALGORITHMS[job["algorithm"]](job["environment"], seed=job["seed"], threads=1, device="cpu")
    agent.prepare()
    start = time.perf_counter()
    agent.learn(job["steps"])
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "return": velocirl.evaluate(agent, episodes=EPISODES, seed=0).mean_return}


def train_peer(job: dict[str, Any]) -> dict[str, Any]:
    """Train an agent of Stable-Baselines3."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    settings = dict(PEERS[job["environment"], job["algorithm"]])
    envs = make_vec_env(job["environment"], n_envs=settings.pop("num_envs", 1), seed=job["seed"])
    if job["algorithm"] == "td3":
        size = envs.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    kind = getattr(stable_baselines3, job["algorithm"].upper())
    model = kind("MlpPolicy", envs, seed=job["seed"], device="cpu", **settings)
    start = time.perf_counter()
    model.learn(job["steps"])
    seconds = time.perf_counter() - start
    evaluation = velocirl.evaluate(model, f"gym:{job['environment']}", episodes=EPISODES, seed=0)
    return {"seconds": seconds, "return": evaluation.mean_return}


def page(results: list[dict[str, Any]]) -> str:
    """The table, a line for each environment, algorithm and library."""
    lines = [
        "| environment | algorithm | library | steps | seeds | return (95% interval) | worst | seconds | processor |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in results:
        groups.setdefault((one["environment"], one["algorithm"], one["library"], one["steps"]), []).append(one)
    order = {name: place for place, name in enumerate((*velocirl.list_envs(), *COMPARED, OURS, PEER))}
    for names, runs in sorted(groups.items(), key=lambda item: [order.get(name, 0) for name in item[0]]):
        environment, algorithm, library, steps = names
        returns = np.array([one["return"] for one in runs])
        low, high = interval(returns)
        seconds = np.median([one["seconds"] for one in runs])
        where = ", ".join(sorted({one["processor"] for one in runs}))
        lines.append(
            f"| {environment} | {algorithm.upper()} | {library} | {int(steps):,} | {len(runs)} | {returns.mean():.4g}"
            f" ({low:.4g} to {high:.4g}) | {returns.min():.4g} | {seconds:.3g} | {where} |"
        )
    return "\n".join(lines)


def interval(returns: np.ndarray) -> tuple[float, float]:
    """The bootstrap interval of a mean."""
    chosen = np.random.default_rng(0).integers(0, len(returns), (4000, len(returns)))
    low, high = np.percentile(returns[chosen].mean(1), (2.5, 97.5))
    return float(low), float(high)


def main() -> None:
    """One of the commands."""
    command_line(__doc__ or "", slowest_first, run_one, page, "comparison")


if __name__ == "__main__":
    main()
