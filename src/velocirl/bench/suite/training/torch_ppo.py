"""PPO training with a torch network on the CPU, compared with PPO written by hand in torch."""

from __future__ import annotations

import importlib.util
from dataclasses import astuple

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.suite.training.ppo import FOUR_EPOCHS, LAYERS, ONE_EPOCH, Work, settings, velocirl_training
from velocirl.bench.units import STEPS

NETWORK = f"mlp({', '.join(map(str, LAYERS[1:-1]))})"
THREADS = 2
OURS, NATIVE, BY_HAND = "velocirl, network of torch", "velocirl, its own network", "torch, by hand"


def network_training(work: Work) -> Timed:
    """Time iterations of velocirl's PPO with a torch network."""
    require_cores(THREADS)
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("torch is not installed")
    agent = velocirl.PPO("CartPole-v1", **settings(work, network=NETWORK, threads=THREADS))
    cost = Cost(operations=work.operations / work.steps, cores=THREADS)
    return Timed(lambda: agent.learn(work.steps), amount=work.steps, cost=cost)


def hand_written_training(work: Work) -> Peer:
    """Time iterations of the program written by hand."""
    return Peer("torch_ppo", "training", *astuple(work), needs="torch", amount=work.steps)


def comparison(work: Work) -> Comparison:
    """Return the comparison for this work."""
    return Comparison(
        unit=STEPS,
        contestants={
            OURS: lambda: network_training(work),
            BY_HAND: lambda: hand_written_training(work),
            NATIVE: lambda: velocirl_training(work, threads=THREADS),
        },
        claims=(ratio(OURS, BY_HAND), ratio(NATIVE, OURS)),
        peers=(BY_HAND,),
    )


@benchmark(category="training", standard=False)
def torch_ppo_4_epochs() -> Comparison:
    """Training PPO with a network of torch on CartPole-v1, 4096 copies x 32 steps, 4 epochs, minibatches of 16384.

    A 64x64 tanh network that policy and value share, on the CPU, with two threads; Adam, gradients clipped by norm,
    advantages normalised in each minibatch. By hand is the same algorithm in eager torch, with CartPoles stepped by a
    compiled loop, in a process of its own; it takes time limits for falls, which saves it the valuation of final
    observations. velocirl's own network does the same work in compiled loops, without torch.
    """
    return comparison(FOUR_EPOCHS)


@benchmark(category="training", standard=False)
def torch_ppo_1_epoch() -> Comparison:
    """Training PPO with a network of torch on CartPole-v1, 4096 copies x 32 steps, 1 epoch, minibatches of 16384.

    As with 4 epochs, but each sample is learned from once.
    """
    return comparison(ONE_EPOCH)
