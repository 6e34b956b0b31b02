"""Train on environments of Gymnasium for which nobody here chose settings, beside Stable-Baselines3 at equal steps.

    python tools/compare_untuned.py run results.jsonl --jobs 2
    python tools/compare_untuned.py write results.jsonl BENCHMARKS.md

Ours by its defaults alone; Stable-Baselines3 by its defaults, and with the settings of its zoo of trained agents. Each
run is a process of its own, on one thread; runs that the file has already are not repeated. Seconds are what `learn`
took of the processor, ours compiled: what else the machine does meanwhile makes no difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from comparing import OURS, PEER, Job, command_line

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean

SEEDS, EPISODES = 5, 20
STEPS = {
    "ppo": dict.fromkeys(
        [
            "Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "InvertedDoublePendulum-v5", "Swimmer-v5", "LunarLander-v3",
            "LunarLanderContinuous-v3", "BipedalWalker-v3",
        ],
        100_000,
    ),
    "dqn": {"LunarLander-v3": 100_000, "Acrobot-v1": 100_000, "MountainCar-v0": 120_000, "CartPole-v1": 50_000},
    "sac": dict.fromkeys(["Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"], 30_000),
    "td3": dict.fromkeys(["Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"], 30_000),
}  # fmt: skip
WIDE = {"net_arch": [256, 256]}
ROBOT = {"log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU", **WIDE}
LANDER = {"num_envs": 16, "n_steps": 1024, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
SWINGING = {
    "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gradient_steps": -1,
    "target_update_interval": 250, "exploration_fraction": 0.12, "exploration_final_eps": 0.1, "policy_kwargs": WIDE,
}  # fmt: skip
ZOO: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {
        "Hopper-v5": {
            "normalize": True, "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-05,
            "ent_coef": 0.00229519, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
            "policy_kwargs": ROBOT,
        },
        "HalfCheetah-v5": {
            "normalize": True, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762,
            "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096,
            "policy_kwargs": ROBOT,
        },
        "Walker2d-v5": {
            "normalize": True, "batch_size": 32, "n_steps": 512, "learning_rate": 5.05041e-05, "ent_coef": 0.000585045,
            "clip_range": 0.1, "n_epochs": 20, "max_grad_norm": 1, "vf_coef": 0.871923,
        },
        "InvertedDoublePendulum-v5": {
            "normalize": True, "batch_size": 128, "n_steps": 128, "gamma": 0.98, "learning_rate": 0.000155454,
            "ent_coef": 1.05057e-06, "clip_range": 0.4, "gae_lambda": 0.8, "vf_coef": 0.695929,
        },  # the zoo says batches of 512, of which a rollout of 128 steps makes one of 128
        "Swimmer-v5": {
            "normalize": True, "gamma": 0.9999, "num_envs": 4, "n_steps": 1024, "batch_size": 256,
            "learning_rate": 6e-4, "gae_lambda": 0.98,
        },
        "LunarLander-v3": LANDER,
        "LunarLanderContinuous-v3": LANDER,
        "BipedalWalker-v3": {"normalize": True, "num_envs": 32, "n_steps": 2048, "gamma": 0.999, "clip_range": 0.18},
    },
    "dqn": {
        "LunarLander-v3": SWINGING,
        "Acrobot-v1": SWINGING,
        "MountainCar-v0": {
            "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
            "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07, "policy_kwargs": WIDE,
        },
        "CartPole-v1": {
            "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
            "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04, "policy_kwargs": WIDE,
        },
    },
    "sac": {name: {"learning_starts": 10_000} for name in STEPS["sac"]},
    "td3": {name: {"learning_starts": 10_000, "noise": 0.1} for name in STEPS["td3"]},
}  # fmt: skip


def jobs() -> Iterator[Job]:
    """Every run of the comparison, the slowest first."""
    for algorithm in ("td3", "sac", "ppo", "dqn"):
        for environment, steps in STEPS[algorithm].items():
            for library, settings in ((PEER, "zoo"), (PEER, "defaults"), (OURS, "defaults")):
                for seed in range(SEEDS):
                    yield {
                        "library": library, "settings": settings, "environment": environment, "algorithm": algorithm,
                        "seed": seed, "steps": steps,
                    }  # fmt: skip


def run_one(job: Job) -> Job:
    """Train and evaluate once."""
    from velocirl.runs.processor import processor

    return {**job, "processor": processor(), **(train_ours(job) if job["library"] == OURS else train_peer(job))}


def train_ours(job: Job) -> Job:
    """Train an agent of ours by its defaults."""
    import velocirl
    from velocirl.algorithms import load_algorithms
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    alone = {"threads": 1, "workers": 0, "device": "cpu"}
    agent: Any = ALGORITHMS[job["algorithm"]](f"gym:{job['environment']}", seed=job["seed"], **alone)
    agent.prepare()
    start = time.process_time()
    agent.learn(job["steps"])
    seconds = time.process_time() - start
    return {"seconds": seconds, "return": velocirl.evaluate(agent, episodes=EPISODES, seed=0).mean_return}


def train_peer(job: Job) -> Job:
    """Train an agent of Stable-Baselines3, and let it evaluate itself."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = dict(ZOO[job["algorithm"]][job["environment"]]) if job["settings"] == "zoo" else {}
    normalize, noise = settings.pop("normalize", False), settings.pop("noise", None)
    if "policy_kwargs" in settings and "activation_fn" in settings["policy_kwargs"]:
        settings["policy_kwargs"] = {**settings["policy_kwargs"], "activation_fn": torch.nn.ReLU}
    envs = make_vec_env(job["environment"], n_envs=settings.pop("num_envs", 1), seed=job["seed"])
    test_envs = make_vec_env(job["environment"], seed=1000)
    if normalize:
        envs = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
        test_envs = VecNormalize(test_envs, training=False, norm_reward=False)
        test_envs.obs_rms = envs.obs_rms
    if noise is not None:
        size = envs.action_space.shape[0]  # type: ignore[index]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, noise))
    model = getattr(stable_baselines3, job["algorithm"].upper())(
        "MlpPolicy", envs, seed=job["seed"], device="cpu", **settings
    )
    start = time.process_time()
    model.learn(job["steps"])
    seconds = time.process_time() - start
    mean, _ = evaluate_policy(model, test_envs, n_eval_episodes=EPISODES)
    return {"seconds": seconds, "return": float(mean)}


def page(results: list[Job]) -> str:
    """A line for each pair of environment and algorithm, ours beside theirs, and what came of what is asked for."""
    columns = {"velocirl": (OURS, "defaults"), "defaults": (PEER, "defaults"), "zoo": (PEER, "zoo")}
    lines = [
        f"| environment | algorithm | steps | velocirl | {PEER}, defaults | {PEER}, zoo | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    found: list[dict[str, Outcome]] = []
    for algorithm, environments in STEPS.items():
        for environment, steps in environments.items():
            of_pair = [one for one in results if (one["algorithm"], one["environment"]) == (algorithm, environment)]
            outcomes = {}
            for name, (library, settings) in columns.items():
                runs = [one for one in of_pair if (one["library"], one["settings"]) == (library, settings)]
                if len(runs) == SEEDS:
                    outcomes[name] = Outcome.of(runs)
            if len(outcomes) < len(columns):
                continue
            found.append(outcomes)
            figures = [str(outcomes[name]) for name in columns]
            seconds = " / ".join(f"{outcomes[name].seconds:.0f}" for name in columns)
            lines.append(f"| {environment} | {algorithm.upper()} | {steps:,} | {' | '.join(figures)} | {seconds} |")
    as_good = sum(one["velocirl"].mean >= max(one["defaults"].mean, one["zoo"].mean) for one in found)
    below = sum(one["velocirl"].high < one["defaults"].low for one in found)
    sooner = sum(one["velocirl"].seconds < min(one["defaults"].seconds, one["zoo"].seconds) for one in found)
    where = ", ".join(sorted({one["processor"] for one in results}))
    lines += [
        "",
        f"Interquartile means of {SEEDS} seeds with 95% intervals (bootstrap), {EPISODES} deterministic episodes each;"
        f" processor seconds of `learn` on one thread, in the order of the columns, on {where}. At least as good as the"
        f" better of the two in {as_good} of {len(found)} pairs, wholly below the defaults in {below}, sooner than both"
        f" in {sooner}.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """What the seeds of a pair came to."""

    mean: float
    low: float
    high: float
    seconds: float

    @classmethod
    def of(cls, runs: list[Job]) -> Outcome:
        """The interquartile mean of the returns, its interval, and the median of the seconds."""
        returns = np.array([one["return"] for one in runs])[:, None]
        low, high = bootstrap(returns)
        seconds = float(np.median([one["seconds"] for one in runs]))
        return cls(float(interquartile_mean(returns)[0]), float(low[0]), float(high[0]), seconds)

    def __str__(self) -> str:
        return f"{self.mean:.0f} ({self.low:.0f} to {self.high:.0f})"


if __name__ == "__main__":
    command_line(__doc__ or "", jobs, run_one, page, "untuned")
