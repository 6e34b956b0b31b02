"""Off-policy training on a GPU: DQN and SAC, compared with the CPU, eager torch and Stable-Baselines3."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer
from velocirl.bench.suite.cuda.cuda_ppo import attempted, require_cuda
from velocirl.bench.suite.training import dqn, sac
from velocirl.bench.units import STEPS, UPDATES, Unit

OURS, NATIVE, EAGER = "velocirl", "velocirl, on the CPU", "torch, eager"
BASELINES = "Stable-Baselines3, its networks on the GPU"
GROUPS = 32  # steps of each environment per call on a GPU
MEMORY = 1_048_576


@dataclass(frozen=True)
class Work:
    """Amount of work: after each step of all environments, `gradient_steps` batches are trained on."""

    num_envs: int
    batch_size: int
    gradient_steps: int
    width: int  # of the two hidden layers


DQN_STEPS, DQN_UPDATES = Work(4096, 4096, 1, 64), Work(4096, 4096, 16, 64)
SAC_STEPS, SAC_UPDATES = Work(1024, 4096, 1, 256), Work(1024, 4096, 8, 256)
DQN = {"double": False, "dueling": False, "n_step": 1, "target_every": 100, "tau": 1.0, "learning_rate": 1e-3}
SAC = {"n_step": 1, "target_every": 1, "tau": 0.005, "learning_rate": 3e-4}


def settings(work: Work, device: str, **given: Any) -> dict[str, Any]:
    """Return an agent's settings for this work."""
    return {
        "num_envs": work.num_envs, "batch_size": work.batch_size, "gradient_steps": work.gradient_steps,
        "train_every": work.num_envs, "hidden": (work.width,) * 2, "learning_starts": work.num_envs,
        "learning_rate_schedule": "constant", "activation": "relu", "buffer_size": MEMORY, "seed": 0, "device": device,
        "gamma": 0.99, "max_grad_norm": 0.0, "priority": "none", **given,
    }  # fmt: skip


def operations(algorithm: str, work: Work) -> float:
    """Return the matrix-product operations of the updates per step of all environments, and no others."""
    if algorithm == "dqn":
        return work.gradient_steps * dqn.operations((4, work.width, work.width, 2), work.batch_size)
    return work.gradient_steps * sac.operations(work.batch_size, work.width)


def velocirl_training(algorithm: str, work: Work, device: str, amount: int, **given: Any) -> Longer:
    """Time calls of `learn` with a callback that does nothing; `amount` is the work per step of all environments."""
    kind, environment = {"dqn": (velocirl.DQN, "CartPole-v1"), "sac": (velocirl.SAC, "Pendulum-v1")}[algorithm]
    agent = kind(environment, **settings(work, device, **given))
    groups = GROUPS if device == "cuda" else 1

    def call() -> None:
        agent.learn(groups * work.num_envs, callbacks=lambda _: None)
        if device == "cuda":
            require_cuda().synchronize()

    call()  # compiles and captures; failures occur here
    if device != "cuda":
        return Longer(Timed(call, amount=groups * amount))
    cost = Cost(operations=operations(algorithm, work) / amount, device="cuda")
    return Longer(Timed(call, amount=groups * amount, cost=cost))


def peer_training(library: str, algorithm: str, work: Work, amount: int) -> Longer:
    """Time a step of all environments and its updates in a peer library on the same device."""
    needs = {"torch": "torch", "sb3": "stable_baselines3"}[library]
    return Longer(Peer(f"{library}_{algorithm}", "training_on_gpu", *astuple(work), needs=needs, amount=amount))


def comparison(algorithm: str, work: Work, unit: Unit, **given: Any) -> Comparison:
    """Return the comparison for this work."""
    amount = work.num_envs if unit is STEPS else work.gradient_steps
    return Comparison(
        unit=unit,
        contestants={
            OURS: attempted(lambda: velocirl_training(algorithm, work, "cuda", amount, **given)),
            NATIVE: attempted(lambda: velocirl_training(algorithm, work, "cpu", amount, **given)),
            EAGER: attempted(lambda: peer_training("torch", algorithm, work, amount)),
            BASELINES: attempted(lambda: peer_training("sb3", algorithm, work, amount)),
        },
        claims=(ratio(OURS, NATIVE), ratio(OURS, EAGER), ratio(OURS, BASELINES)),
        peers=(EAGER, BASELINES),
    )


@benchmark(category="device")
def cuda_dqn() -> Comparison:
    """Training DQN on one CUDA device, CartPole-v1, 4096 copies, an update of 4096 transitions for each of their steps.

    A 64x64 network, neither double nor dueling, a memory of a million transitions, Adam; the target network is copied
    every 100 updates. velocirl's figures are of whole calls of `learn`, warm, metrics and a callback included; that of
    the CPU is the native learner on all cores of the same machine. Eager torch steps CartPole as operations on tensors,
    has its memory as tensors of the same device, multiplies in TF32 too, and takes time limits for falls.
    Stable-Baselines3 steps as many of Gymnasium's environments in one process and has its memory on the host.
    """
    return comparison("dqn", DQN_STEPS, STEPS, **DQN)


@benchmark(category="device")
def cuda_dqn_updates() -> Comparison:
    """Updates of DQN on one CUDA device, CartPole-v1, 4096 copies, batches of 4096 transitions.

    As `cuda_dqn`, with 16 updates for each step of the copies, and counted in updates.
    """
    return comparison("dqn", DQN_UPDATES, UPDATES, **DQN)


@benchmark(category="device")
def cuda_sac() -> Comparison:
    """Training SAC on one CUDA device, Pendulum-v1, 1024 copies, an update of 4096 transitions for each of their steps.

    256x256 networks for the actor and each critic, a learnt temperature, a memory of a million transitions, Adam.
    Eager torch steps Pendulum as operations on tensors; the rest as with DQN.
    """
    return comparison("sac", SAC_STEPS, STEPS, **SAC)


@benchmark(category="device")
def cuda_sac_updates() -> Comparison:
    """Updates of SAC on one CUDA device, Pendulum-v1, 1024 copies, batches of 4096 transitions.

    As `cuda_sac`, with 8 updates for each step of the copies, and counted in updates.
    """
    return comparison("sac", SAC_UPDATES, UPDATES, **SAC)
