"""Offline training on a GPU: TD3+BC and IQL, compared with the CPU of the same machine and eager torch."""

from __future__ import annotations

from functools import partial

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer
from velocirl.bench.suite.cuda.cuda_ppo import attempted, require_cuda
from velocirl.bench.suite.training.offline import ACTED, BATCH, OBSERVED, WIDTH, agent_of, operations
from velocirl.bench.units import UPDATES

OURS, NATIVE, EAGER = "velocirl", "velocirl, on the CPU", "torch, eager"
OWN_UPDATES, PEER_UPDATES = 4096, 64
LEAST_RATIO = 5.0


def velocirl_updates(algorithm: str, device: str) -> Longer:
    """Time calls of `learn` with a callback that does nothing."""
    agent = agent_of(algorithm, device=device)
    updates = OWN_UPDATES if device == "cuda" else PEER_UPDATES

    def call() -> None:
        agent.learn(updates, callbacks=lambda _: None)
        if device == "cuda":
            require_cuda().synchronize()

    call()  # compiles and captures; failures occur here
    cost = Cost(operations=operations(algorithm), device="cuda") if device == "cuda" else None
    return Longer(Timed(call, amount=updates, cost=cost))


def eager_updates(algorithm: str) -> Longer:
    """Time the same updates in eager torch on the same device."""
    function, sizes = f"{algorithm.replace('-', '_')}_on_gpu", (PEER_UPDATES, BATCH, WIDTH, OBSERVED, ACTED)
    return Longer(Peer("torch_offline", function, *sizes, needs="torch", amount=PEER_UPDATES))


def comparison(algorithm: str) -> Comparison:
    """Return the comparison for one algorithm."""
    return Comparison(
        unit=UPDATES,
        contestants={
            OURS: attempted(partial(velocirl_updates, algorithm, "cuda")),
            NATIVE: attempted(partial(velocirl_updates, algorithm, "cpu")),
            EAGER: attempted(partial(eager_updates, algorithm)),
        },
        claims=(ratio(OURS, EAGER, at_least=LEAST_RATIO), ratio(OURS, NATIVE)),
        peers=(EAGER,),
    )


@benchmark(category="device")
def cuda_offline_td3_bc() -> Comparison:
    """Updates of TD3+BC on one CUDA device, batches of 256 recorded transitions, networks of 256x256.

    As `offline_td3_bc`: 17 numbers are observed and 6 are acted. velocirl's figures are of whole calls of `learn`,
    warm, metrics and a callback included; that of the CPU is the native learner on all cores of the same machine. Eager
    torch has its data as tensors of the same device, multiplies in TF32 too, and its Adam is one kernel.
    """
    return comparison("td3-bc")


@benchmark(category="device")
def cuda_offline_iql() -> Comparison:
    """Updates of IQL on one CUDA device, batches of 256 recorded transitions, networks of 256x256.

    As `cuda_offline_td3_bc`.
    """
    return comparison("iql")
