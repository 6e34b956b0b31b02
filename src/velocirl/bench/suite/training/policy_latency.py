"""Latency of a policy: one observation in, one action out, without batching."""

from __future__ import annotations

import numpy as np

import velocirl
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.machine.arithmetic import forward_operations
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS
from velocirl.networks.mlp import MLP
from velocirl.networks.native import NativeNetwork

MOST_SECONDS = 10e-6
SIZES = (64, 256, 256, 16)


def velocirl_predict() -> Timed:
    """Time the deterministic action for one observation of CartPole."""
    agent = velocirl.PPO("CartPole-v1", hidden=(64, 64), activation="tanh", shared=True, seed=0)
    observation = np.full(4, 0.01, np.float32)
    return Timed(lambda: agent.predict(observation, deterministic=True))


def velocirl_forward() -> Timed:
    """Time one row through the native network on one thread."""
    network = MLP.of(SIZES)
    native = NativeNetwork(network, network.initial_parameters(np.random.default_rng(0)))
    row, outputs = np.full((1, SIZES[0]), 0.1, np.float32), np.empty((1, SIZES[-1]), np.float32)
    return Timed(lambda: native.forward(row, outputs), cost=Cost(operations=forward_operations(SIZES)))


@benchmark(category="network")
def predict_one() -> Comparison:
    """The action for one observation of CartPole-v1, MLP 64x64.

    Through `predict`, as a user calls it, with a NumPy array, on the CPU; the most probable action, nothing is drawn.
    """
    return Comparison(
        unit=SECONDS,
        contestants={
            "velocirl": velocirl_predict,
            "Stable-Baselines3": lambda: Peer("sb3_ppo", "predicting", needs="stable_baselines3"),
        },
        claims=(value("velocirl", at_most=MOST_SECONDS), ratio("velocirl", "Stable-Baselines3")),
        peers=("Stable-Baselines3",),
    )


@benchmark(category="network")
def forward_one() -> Comparison:
    """One row through an MLP of 64-256-256-16.

    velocirl reads and writes NumPy arrays; torch has a tensor already, in inference mode.
    """
    return Comparison(
        unit=SECONDS,
        contestants={
            "velocirl": velocirl_forward,
            "torch": lambda: Peer("torch_network", "forward", 1, *SIZES, needs="torch"),
        },
        claims=(value("velocirl", at_most=MOST_SECONDS), ratio("velocirl", "torch")),
        peers=("torch",),
    )
