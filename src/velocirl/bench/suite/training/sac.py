"""SAC on Pendulum: speed, share of the machine's peak, and time to solve."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import velocirl
from velocirl.algorithms.online.sac import SACConfig
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.arithmetic import phase_facts
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.suite.training.ppo import FLOPS, MATRIX, matmul_peak
from velocirl.bench.suite.training.solving import stable_baselines3_solving, velocirl_solving
from velocirl.bench.units import SECONDS, STEPS

OBSERVED, ACTED, WIDTH, BATCH = 3, 1, 256, 256
WARM, OWN_STEPS, PEER_STEPS, THREADS = 100, 200, 50, 2
LEAST_RATIO, LEAST_SHARE, LEAST_SOONER = 1.8, 0.45, 4.0
PATIENCE_STEPS = 20_000  # with Stable-Baselines3
SEEDS = 3
# Solved is judged by the mean of 20 evaluation episodes, with the same initial states each time.
SOLVE = """
import velocirl

agent = velocirl.SAC("Pendulum-v1", seed={seed}, device="cpu")
evaluating = velocirl.Evaluate(every=1000, episodes=20, seed=1000)
solved = velocirl.StopOnReward(-200, "eval/mean_reward")
agent.learn(agent.preset()["total_steps"], callbacks=[evaluating, solved])
print("solved" if agent.stopping else agent.steps)
"""
SOLVE_BY_STABLE_BASELINES3 = """
import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.monitor import Monitor

torch.set_num_threads(2)
solved = StopTrainingOnRewardThreshold(-200, verbose=0)
evaluating = EvalCallback(
    Monitor(gymnasium.make("Pendulum-v1")), callback_on_new_best=solved, n_eval_episodes=20, eval_freq=1000, verbose=0
)
model = SAC("MlpPolicy", gymnasium.make("Pendulum-v1"), seed=0, device="cpu")
model.learn({patience}, callback=evaluating)
print("solved" if evaluating.best_mean_reward >= -200 else model.num_timesteps)
"""


def settings() -> dict[str, Any]:
    """Return all settings of SAC, so that no preset changes them: Stable-Baselines3's defaults."""
    config = SACConfig(num_envs=1, learning_starts=WARM, seed=0, threads=THREADS, device="cpu")
    return asdict(config)


def operations(batch: int = BATCH, width: int = WIDTH) -> int:
    """Return the floating-point operations of an update's matrix products, and no others."""
    hidden = width * width
    actor = OBSERVED * width + hidden + width * 2 * ACTED
    critics = 2 * ((OBSERVED + ACTED) * width + hidden + width)
    # A backward pass multiplies by the weights and by the inputs; gradients of observations are not needed.
    actor_back, critics_back = 2 * actor - OBSERVED * width, 2 * critics - 2 * (OBSERVED + ACTED) * width
    learning_critics = actor + critics + critics + critics_back
    learning_actor = actor + critics + critics + actor_back
    return 2 * batch * (learning_critics + learning_actor)


def velocirl_training(amount: float = 1.0) -> Timed:
    """Time Pendulum steps with an update each, in steps per second; `amount` counts other units of work per step."""
    require_cores(THREADS)
    agent = velocirl.SAC("Pendulum-v1", **settings())
    agent.learn(WARM)
    cost = Cost(operations=operations() / amount, cores=THREADS)
    return Timed(lambda: agent.learn(OWN_STEPS), amount=OWN_STEPS * amount, cost=cost, facts=lambda: phase_facts(agent))


def stable_baselines3_training() -> Peer:
    """Time the same training in Stable-Baselines3 with two torch threads."""
    return Peer("sb3_sac", "training", PEER_STEPS, THREADS, needs="stable_baselines3", amount=PEER_STEPS)


@benchmark(category="training")
def sac_pendulum() -> Comparison:
    """Training SAC on Pendulum-v1, one copy, an update of 256 transitions for each step.

    Networks of 256x256, the settings of Stable-Baselines3's defaults, which steps Gymnasium's Pendulum; two threads.
    Of arithmetic, only the multiplications and additions of the layers in an update count.
    """
    ours, theirs = "velocirl, 2 threads", "Stable-Baselines3, 2 threads"
    return Comparison(
        unit=STEPS,
        contestants={ours: velocirl_training, theirs: stable_baselines3_training},
        claims=(ratio(ours, theirs, at_least=LEAST_RATIO),),
        peers=(theirs,),
    )


@benchmark(category="training", quick=False)
def sac_share_of_peak() -> Comparison:
    """Arithmetic of training SAC on Pendulum-v1 beside this machine's own peak.

    As above. Of training, only the multiplications and additions of the networks' layers count; its time is that of
    everything. The peak is the best of three products of 2048x2048 matrices by NumPy's BLAS on two cores.
    """
    training, peak = "velocirl, training on 2 threads", "NumPy, matrix product on 2 cores"
    return Comparison(
        unit=FLOPS,
        contestants={training: lambda: velocirl_training(operations()), peak: lambda: matmul_peak(MATRIX)},
        claims=(ratio(training, peak, at_least=LEAST_SHARE),),
    )


@benchmark(category="training", standard=False)
def sac_time_to_solve() -> Comparison:
    """Fresh process to Pendulum-v1 solved by SAC.

    Solved is a mean return of at least -200 over 20 episodes, evaluated after every 1000 steps. Whole processes are
    timed: Python's start, imports, compiled functions from a warm cache, training with the settings that the
    environment brings, with 3 seeds in turns. Stable-Baselines3 has its defaults, two threads of torch, and is trained
    once, with one seed, before the rounds; its one figure stands in each of them.
    """
    ours, theirs = "velocirl", "Stable-Baselines3"
    return Comparison(
        unit=SECONDS,
        contestants={
            ours: lambda: velocirl_solving(SOLVE, SEEDS),
            theirs: lambda: stable_baselines3_solving(SOLVE_BY_STABLE_BASELINES3.format(patience=PATIENCE_STEPS)),
        },
        claims=(ratio(ours, theirs, at_least=LEAST_SOONER),),
        peers=(theirs,),
    )
