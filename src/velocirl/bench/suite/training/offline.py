"""Offline training: updates of TD3+BC and IQL, compared with d3rlpy's and with the machine's peak."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from velocirl import Dataset, DatasetInfo
from velocirl.algorithms import load_algorithms
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.arithmetic import backward_operations, forward_operations, phase_facts
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.suite.training.ppo import FLOPS, MATRIX, matmul_peak
from velocirl.bench.units import UPDATES
from velocirl.training.persistence import ALGORITHMS

OBSERVED, ACTED, WIDTH, BATCH = 17, 6, 256, 256
EPISODES, LENGTH = 100, 1000
OWN_UPDATES, PEER_UPDATES, THREADS = 200, 50, 2
LEAST_RATIO, LEAST_SHARE = 2.0, 0.45
SETTINGS: dict[str, Any] = {
    "hidden": (WIDTH, WIDTH),
    "batch_size": BATCH,
    "learning_rate_schedule": "constant",
    "seed": 0,
    "critic_layer_norm": False,  # as in the peers' critics
}
PYTHON = "VELOCIRL_D3RLPY_PYTHON"  # path of a Python with d3rlpy, which pins different library versions


@cache
def made_up() -> Dataset:
    """Return random transitions with HalfCheetah's observation and action sizes."""
    generator = np.random.default_rng(0)
    seen, acted = Box(-np.inf, np.inf, (OBSERVED,), np.float32), Box(-1.0, 1.0, (ACTED,), np.float32)
    last = np.arange(LENGTH) == LENGTH - 1
    episodes = [
        {
            "observations": generator.standard_normal((LENGTH + 1, OBSERVED), np.float32),
            "actions": generator.uniform(-1, 1, (LENGTH, ACTED)).astype(np.float32),
            "rewards": generator.standard_normal(LENGTH, np.float32),
            "costs": np.zeros((LENGTH, 0), np.float32),
            "terminations": np.zeros(LENGTH, np.bool_),
            "truncations": last,
        }
        for _ in range(EPISODES)
    ]
    return Dataset.from_episodes(episodes, DatasetInfo(seen, acted))


def agent_of(algorithm: str, **given: Any) -> Any:
    """Create an agent that learns from the random data, with critics like the peers'."""
    load_algorithms()
    return ALGORITHMS[algorithm](data=made_up(), **{**SETTINGS, **given})


def operations(algorithm: str) -> float:
    """Return the floating-point operations of an update's indispensable matrix products."""
    of_state, of_action = (OBSERVED, WIDTH, WIDTH, 1), (OBSERVED + ACTED, WIDTH, WIDTH, 1)
    policy = (OBSERVED, WIDTH, WIDTH, ACTED)
    forward, backward = forward_operations, backward_operations
    critics = 2 * (forward(of_action) + forward(of_action) + backward(of_action))  # frozen and trained critics
    if algorithm == "td3-bc":  # actor at every second update: gradient through the first critic to the action
        into_action = forward(of_action) - 2 * OBSERVED * WIDTH
        actor = forward(policy) + backward(policy) + forward(of_action) + into_action
        return BATCH * (forward(policy) + critics + actor / 2)
    value = 3 * forward(of_state) + backward(of_state)  # before and after its step, and for the next state
    return BATCH * (critics + value + forward(policy) + backward(policy))


def velocirl_updates(algorithm: str, amount: float = 1.0) -> Timed:
    """Time calls of `learn`, in updates per second; `amount` counts other units of work per update."""
    require_cores(THREADS)
    agent = agent_of(algorithm, threads=THREADS, device="cpu")
    agent.learn(OWN_UPDATES)
    cost = Cost(operations=operations(algorithm) / amount, cores=THREADS)
    call = partial(agent.learn, OWN_UPDATES)
    return Timed(call, amount=OWN_UPDATES * amount, cost=cost, facts=lambda: phase_facts(agent))


def beside_d3rlpy(algorithm: str) -> Comparison:
    """Compare velocirl with d3rlpy on two threads."""
    ours, theirs = "velocirl, 2 threads", "d3rlpy, 2 threads"
    function = algorithm.replace("-", "_")
    sizes = PEER_UPDATES, THREADS, OBSERVED, ACTED
    return Comparison(
        unit=UPDATES,
        contestants={
            ours: partial(velocirl_updates, algorithm),
            theirs: partial(
                Peer, "d3rlpy_offline", function, *sizes, needs="d3rlpy", amount=PEER_UPDATES, python_of=PYTHON
            ),
        },
        claims=(ratio(ours, theirs, at_least=LEAST_RATIO),),
        peers=(theirs,),
    )


@benchmark(category="training")
def offline_td3_bc() -> Comparison:
    """Updates of TD3+BC from 100,000 recorded transitions, batches of 256, networks of 256x256.

    17 numbers are observed and 6 are acted; two threads. velocirl's figures are of whole calls of `learn`. d3rlpy, with
    its defaults, draws its batches and updates without the files of its `fit`; it needs a Python of its own, which the
    environment variable VELOCIRL_D3RLPY_PYTHON names.
    """
    return beside_d3rlpy("td3-bc")


@benchmark(category="training")
def offline_iql() -> Comparison:
    """Updates of IQL from 100,000 recorded transitions, batches of 256, networks of 256x256.

    As `offline_td3_bc`.
    """
    return beside_d3rlpy("iql")


@benchmark(category="training", quick=False)
def offline_share_of_peak() -> Comparison:
    """Arithmetic of learning from recorded data beside this machine's own peak.

    As above. Only the multiplications and additions of layers count that an update cannot do without; its time is that
    of everything. The peak is the best of three products of 2048x2048 matrices by NumPy's BLAS on two cores.
    """
    peak, names = "NumPy, matrix product on 2 cores", {"TD3+BC, 2 threads": "td3-bc", "IQL, 2 threads": "iql"}
    training = {name: partial(velocirl_updates, one, operations(one)) for name, one in names.items()}
    return Comparison(
        unit=FLOPS,
        contestants={**training, peak: lambda: matmul_peak(MATRIX)},
        claims=[ratio(name, peak, at_least=LEAST_SHARE) for name in training],
    )
