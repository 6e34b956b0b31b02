"""PPO training on a GPU, compared with JAX and eager torch on the same device, and the time to solve CartPole."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import astuple
from itertools import cycle
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio, value
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Counted, Sampler, Timed
from velocirl.bench.peers.process import Peer, reason
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer
from velocirl.bench.suite.training.ppo import LAYERS, Work, settings
from velocirl.bench.units import SECONDS, STEPS
from velocirl.engine.errors import debugging

ITERATIONS = 8  # per call of `learn`
SMALL = Work(4096, 32, epochs=1, minibatch_size=4096 * 32 // 8)
MEDIUM = Work(16384, 64, epochs=1, minibatch_size=16384 * 64 // 4)
LARGE = Work(65536, 32, epochs=1, minibatch_size=65536 * 32 // 4)
OURS, JAX, EAGER = "velocirl", "JAX, one jitted program", "torch, eager"

SOLVED, SEEDS, MOST_STEPS = 475.0, 5, 10_000_000
# A pole falls soon or not at all: a shorter horizon than usual halves the iterations to a solution.
SOLVING = {"learning_rate": 5e-3, "gamma": 0.98, "gae_lambda": 0.9}
FAST = Work(1024, 32, epochs=4, minibatch_size=4096)


def require_cuda() -> Any:
    """Return Numba's CUDA interface; raises if the device or a required package is missing."""
    for module, name in (("torch", "torch"), ("numba_cuda", "numba-cuda")):
        if importlib.util.find_spec(module) is None:
            raise UnavailableError(f"{name} is not installed")
    from velocirl.engine.targets.cuda import cuda  # needs numba-cuda

    if not cuda.is_available():
        raise UnavailableError("no CUDA device")
    return cuda


def attempted(make: Callable[[], Sampler]) -> Callable[[], Sampler]:
    """Wrap a sampler factory: if creation or the first call fails, it raises `UnavailableError` with the reason."""

    def contestant() -> Sampler:
        require_cuda()
        try:
            return make()
        except (UnavailableError, ModuleNotFoundError):
            raise
        except Exception as error:
            if debugging():
                raise
            raise UnavailableError(f"failed: {reason(f'{type(error).__name__}: {error}')}") from error

    return contestant


def velocirl_training(environment: str, work: Work, **given: Any) -> Longer:
    """Time velocirl's PPO on the device: calls of `learn` with a callback that does nothing."""
    cuda = require_cuda()
    agent = velocirl.PPO(environment, **settings(work, device="cuda", **given))

    def call() -> None:
        agent.learn(ITERATIONS * work.steps, callbacks=lambda _: None)
        cuda.synchronize()

    call()  # compiles and captures; failures occur here
    cost = None
    # Convolutions are not counted, and the peak is for TF32, which other precisions may exceed.
    if not {"network", "precision"} & set(given):
        layers = (LAYERS[0], *given.get("hidden", LAYERS[1:-1]), LAYERS[-1])
        cost = Cost(operations=work.operations_of(layers) / work.steps, device="cuda")
    return Longer(Timed(call, amount=ITERATIONS * work.steps, cost=cost))


def peer_training(program: str, work: Work, needs: str) -> Longer:
    """Time PPO iterations of a peer on the same device."""
    return Longer(Peer(program, "training_on_gpu", *astuple(work), needs=needs, amount=work.steps))


def comparison(work: Work, at_least: float) -> Comparison:
    """Return the comparison for this work; `at_least` is velocirl's required steps per second."""
    return Comparison(
        unit=STEPS,
        contestants={
            OURS: attempted(lambda: velocirl_training("CartPole-v1", work)),
            JAX: attempted(lambda: peer_training("jax_ppo", work, needs="jax")),
            EAGER: attempted(lambda: peer_training("torch_ppo", work, needs="torch")),
        },
        claims=(value(OURS, at_least=at_least), ratio(OURS, JAX), ratio(OURS, EAGER)),
        peers=(JAX, EAGER),
    )


@benchmark(category="device")
def cuda_ppo_4096() -> Comparison:
    """Training PPO on one CUDA device, CartPole-v1, 4096 copies x 32 steps, 1 epoch, 8 minibatches.

    A 64x64 tanh network that policy and value share; Adam, gradients clipped by norm, samples shuffled, advantages
    normalised in each minibatch. velocirl's figure is of whole calls of `learn`, warm, metrics and a callback included,
    in samples of 0.3 s. JAX is the same algorithm as one jitted program, torch the same without graphs, CartPole as
    operations on tensors; both are on the same device in processes of their own, multiply in TF32, and take time limits
    for falls, which saves them the valuation of final observations.
    """
    return comparison(SMALL, at_least=50e6)


@benchmark(category="device")
def cuda_ppo_16384() -> Comparison:
    """Training PPO on one CUDA device, CartPole-v1, 16384 copies x 64 steps, 1 epoch, 4 minibatches.

    As with 4096 copies.
    """
    return comparison(MEDIUM, at_least=120e6)


@benchmark(category="device")
def cuda_ppo_65536() -> Comparison:
    """Training PPO on one CUDA device, CartPole-v1, 65536 copies x 32 steps, 1 epoch, 4 minibatches.

    As with 4096 copies.
    """
    return comparison(LARGE, at_least=180e6)


@benchmark(category="device", quick=False)
def cuda_time_to_solve() -> Comparison:
    """CartPole-v1 solved by PPO on one CUDA device, after warm-up.

    Solved is a mean return of at least 475 over the last 100 episodes of training, 1024 copies x 32 steps, 4 epochs.
    The time is that of `learn`; the process is warm, and what an agent prepares once is prepared. Each sample is the
    median of 5 seeds, one of them trained anew for it.
    """
    return Comparison(
        unit=SECONDS,
        contestants={OURS: attempted(lambda: Counted(median_of_seeds(SEEDS, seconds_to_solve)))},
        claims=(value(OURS, at_most=0.5),),
    )


def seconds_to_solve(seed: int, device: str = "cuda") -> float:
    """Return the seconds of training until an agent with this seed solves CartPole."""
    agent = velocirl.PPO("CartPole-v1", **settings(FAST, **SOLVING, device=device, seed=seed))
    agent.prepare()
    start = time.perf_counter()
    agent.learn(MOST_STEPS, callbacks=velocirl.StopOnReward(SOLVED))
    seconds = time.perf_counter() - start
    if agent.stopping is None:
        raise UnavailableError(f"not solved in {agent.steps:,} steps with seed {seed}")
    return seconds


def median_of_seeds(seeds: int, seconds: Callable[[int], float]) -> Callable[[], float]:
    """Return a call that measures one of the seeds again and returns the median of all seeds."""
    seconds(0)  # warms the process
    latest = {seed: seconds(seed) for seed in range(seeds)}
    turns = cycle(range(seeds))

    def call() -> float:
        seed = next(turns)
        latest[seed] = seconds(seed)
        return statistics.median(latest.values())

    return call
