"""Parts of an update, each alone: the gradient of PPO's loss, and a step of the optimiser."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo_config import PPOConfig
from velocirl.algorithms.online.ppo_loss import loss_settings, ppo_loss
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import Unit
from velocirl.buffers.rollout import sample_type
from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.networks.heads import categorical
from velocirl.optim.flat import FlatOptimiser
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.updating import METRICS

SAMPLES_PER_SECOND = Unit("samples/s", True, "{number}{prefix} samples/s")
PARAMETERS_PER_SECOND = Unit("parameters/s", True, "{number}{prefix} parameters/s")
SAMPLES = 16_384
NEEDED = ("action", "log_probability", "advantage", "target")  # of a record
SIZES = {"a 64x64 network": 9_360, "a 256x256 network": 86_544, "10M parameters": 10_000_000}
BEYOND_CACHES = 5_000_000  # parameters
TOUCHED = 7  # numbers: parameter and two moments are read and written, the gradient is read


def random_samples(count: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Records of a rollout, and outputs of a network: two logits and the value."""
    generator = np.random.default_rng(0)
    samples = np.zeros(count, sample_type(4, 1, "int32", 0))
    samples["action"] = generator.integers(0, 2, (count, 1))
    samples["log_probability"] = -generator.random(count, np.float32)
    for name in ("advantage", "target", "value"):
        samples[name] = generator.standard_normal(count, np.float32)
    return samples, generator.standard_normal((count, 3), np.float32)


class LossGradients:
    """The gradient of PPO's loss, for one output after another."""

    def __init__(self, count: int = SAMPLES) -> None:
        loss_gradient = ppo_loss(categorical(2))

        def every_sample(outputs, samples, settings, gradients, metrics):
            for i in range(len(samples)):
                loss_gradient(outputs[i], samples[i], samples[i].advantage, settings, gradients[i], metrics)

        self.samples, self.outputs = random_samples(count)
        self.gradients, self.metrics = np.empty_like(self.outputs), np.zeros(METRICS, np.float32)
        settings = loss_settings(PPOConfig(clip=0.2, value_coefficient=0.5, entropy_coefficient=0.01, value_clip=0.0))
        self._arguments = self.outputs, self.samples, settings, self.gradients, self.metrics
        loop: Any = every_sample
        self._run = compile_loop(loop, self._arguments, learning_translator("ppo loss"), before=lambda: None)

    def call(self) -> None:
        """All samples once."""
        self._run(*self._arguments)


def velocirl_losing() -> Timed:
    """Samples per second."""
    loss = LossGradients()
    needed = sum(loss.samples.dtype[name].itemsize for name in NEEDED) + 2 * loss.outputs.itemsize * 3
    return Timed(loss.call, amount=SAMPLES, cost=Cost(bytes=needed))


def velocirl_descending(parameters: int) -> Timed:
    """Steps of Adam, in parameters per second."""
    optimiser = FlatOptimiser(optimiser_from("adam"), parameters)
    vector, gradient = np.zeros(parameters, np.float32), np.full(parameters, 0.1, np.float32)
    step = partial(optimiser.step, vector, gradient, 1e-4)
    cost = Cost(bytes=4 * TOUCHED) if parameters >= BEYOND_CACHES else None
    return Timed(step, amount=parameters, cost=cost)


@benchmark(category="learning")
def ppo_loss_gradient() -> Comparison:
    """The gradient of PPO's loss for 16,384 outputs of a policy of two actions and a value, on one core.

    velocirl's is the scalar function that every learner calls, which reads the records of a rollout and reports six
    metrics too; torch has columns, and finds the gradient by itself.
    """
    peer = partial(Peer, "torch_learning", "losing", SAMPLES, needs="torch", amount=SAMPLES, cores=1)
    return Comparison(
        unit=SAMPLES_PER_SECOND,
        contestants={"velocirl": velocirl_losing, "torch": peer},
        claims=(ratio("velocirl", "torch"),),
        peers=("torch",),
    )


@benchmark(category="learning")
def adam_step() -> Comparison:
    """One step of Adam over a flat vector of parameters, by size, on one core.

    torch's is fused into one pass, for one tensor of as many parameters. Of a small network no number leaves the cache.
    """
    contestants, claims, peers = {}, [], []
    for name, parameters in SIZES.items():
        contestants[name] = partial(velocirl_descending, parameters)
        peers.append(f"torch, {name}")
        contestants[peers[-1]] = partial(
            Peer, "torch_learning", "descending", parameters, needs="torch", amount=parameters, cores=1
        )
        claims.append(ratio(name, peers[-1]))
    return Comparison(PARAMETERS_PER_SECOND, contestants, claims, peers)
