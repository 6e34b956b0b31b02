"""PPO training, compared with other implementations and with the machine's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import velocirl
from velocirl.algorithms.online.ppo import PPOConfig
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.arithmetic import backward_operations, forward_operations, phase_facts
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.units import FLOPS, STEPS

LAYERS = (4, 64, 64, 3)  # the outputs are two logits and the value
MATRIX = 2048
ITERATIONS = 4  # of velocirl per sample: one is too short to measure right after a peer's sample
ONE_THREAD, TWO_THREADS, JAX = "velocirl, 1 thread", "velocirl, 2 threads", "JAX, one jitted program"


@dataclass(frozen=True)
class Work:
    """Amount of work of one PPO iteration."""

    num_envs: int = 4096
    horizon: int = 32
    epochs: int = 4
    minibatch_size: int = 16384

    @property
    def steps(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.horizon

    @property
    def operations(self) -> int:
        """Floating-point operations per iteration in the network's matrix products, and no others."""
        return self.operations_of(LAYERS)

    def operations_of(self, sizes: Sequence[int]) -> int:
        """Return an iteration's matrix-product operations for layers of these sizes."""
        forward, backward = forward_operations(sizes), backward_operations(sizes)
        return self.steps * (forward + self.epochs * (forward + backward))


FOUR_EPOCHS, ONE_EPOCH = Work(), Work(epochs=1)
FEW_COPIES = Work(num_envs=64, minibatch_size=256)  # for Stable-Baselines3, which steps environments one by one


def settings(work: Work, **given: Any) -> dict[str, Any]:
    """Return all settings of PPO for this work, so that no preset changes it, updated by `given`."""
    config = PPOConfig(
        num_envs=work.num_envs,
        horizon=work.horizon,
        epochs=work.epochs,
        minibatch_size=work.minibatch_size,
        learning_rate=1e-3,
        learning_rate_schedule="constant",
        gamma=0.99,
        gae_lambda=0.95,
        hidden=LAYERS[1:-1],
        activation="tanh",
        shared=True,
        seed=0,
        device="cpu",  # even if the machine has a GPU
    )
    return {**asdict(config), **given}


def velocirl_training(work: Work, threads: int, amount: float | None = None) -> Timed:
    """Time iterations of velocirl's PPO, in steps per second or another unit of work."""
    require_cores(threads)
    agent = velocirl.PPO("CartPole-v1", **settings(work, threads=threads))
    units = amount or work.steps
    return Timed(
        lambda: agent.learn(ITERATIONS * work.steps),
        amount=ITERATIONS * units,
        cost=Cost(operations=work.operations / units, cores=threads),
        facts=lambda: phase_facts(agent),
    )


def jax_training(work: Work) -> Peer:
    """Time iterations of the JAX program."""
    return Peer("jax_ppo", "training", *astuple(work), needs="jax", amount=work.steps)


def stable_baselines3_training(work: Work) -> Peer:
    """Time iterations of Stable-Baselines3's PPO."""
    return Peer("sb3_ppo", "training", *astuple(work), needs="stable_baselines3", amount=work.steps)


def matmul_peak(size: int) -> Counted:
    """Measure NumPy's peak: the best of three large float32 products on two cores, in operations per second."""
    peer = Peer("numpy_matmul", "product", size, needs="numpy")
    return Counted(lambda: 2 * size**3 / peer.best(3), closing=peer.close)


@benchmark(category="training")
def ppo_4_epochs() -> Comparison:
    """Training PPO on CartPole-v1, 4096 copies x 32 steps, 4 epochs, minibatches of 16384.

    A 64x64 tanh network that policy and value share; Adam, gradients clipped by norm, advantages normalised in each
    minibatch. JAX is the same algorithm as one jitted program; it takes time limits for falls, which saves it the
    valuation of final observations. Stable-Baselines3 steps 64 of Gymnasium's CartPoles for 32 steps, with minibatches
    of 256, which are as many as here, one or two threads of torch, whichever is faster, and two networks, since it
    shares none. Peers run in processes of their own, on two cores. Of arithmetic, only the multiplications and
    additions of the layers count.
    """
    stable_baselines3 = "Stable-Baselines3, 64 copies"
    return Comparison(
        unit=STEPS,
        contestants={
            ONE_THREAD: lambda: velocirl_training(FOUR_EPOCHS, threads=1),
            TWO_THREADS: lambda: velocirl_training(FOUR_EPOCHS, threads=2),
            JAX: lambda: jax_training(FOUR_EPOCHS),
            stable_baselines3: lambda: stable_baselines3_training(FEW_COPIES),
        },
        claims=(
            ratio(TWO_THREADS, JAX, at_least=3.0),
            ratio(TWO_THREADS, stable_baselines3, at_least=40.0),
            ratio(TWO_THREADS, ONE_THREAD),
        ),
        peers=(JAX, stable_baselines3),
    )


@benchmark(category="training")
def ppo_1_epoch() -> Comparison:
    """Training PPO on CartPole-v1, 4096 copies x 32 steps, 1 epoch, minibatches of 16384.

    As with 4 epochs, but each sample is learned from once.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            ONE_THREAD: lambda: velocirl_training(ONE_EPOCH, threads=1),
            TWO_THREADS: lambda: velocirl_training(ONE_EPOCH, threads=2),
            JAX: lambda: jax_training(ONE_EPOCH),
        },
        claims=(ratio(TWO_THREADS, JAX, at_least=2.5), ratio(TWO_THREADS, ONE_THREAD)),
        peers=(JAX,),
    )


@benchmark(category="training", quick=False)
def ppo_share_of_peak() -> Comparison:
    """Arithmetic of training PPO on CartPole-v1, 4 epochs, beside this machine's own peak.

    Of training, only the multiplications and additions of the network's layers count, forward and backward; its time is
    that of everything. The peak is the best of three products of 2048x2048 matrices by NumPy's BLAS on two cores.
    """
    training, peak = "velocirl, training on 2 threads", "NumPy, matrix product on 2 cores"
    return Comparison(
        unit=FLOPS,
        contestants={
            training: lambda: velocirl_training(FOUR_EPOCHS, threads=2, amount=FOUR_EPOCHS.operations),
            peak: lambda: matmul_peak(MATRIX),
        },
        claims=(ratio(training, peak, at_least=0.45),),
    )
