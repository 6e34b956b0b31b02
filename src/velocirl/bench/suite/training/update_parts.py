"""Parts of an update in isolation: the gradient of PPO's loss, and an optimizer step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.algorithms.online.ppo import PPO, loss_gradient
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import Unit
from velocirl.buffers.records import Act, Field, narrow_type, rollout_type
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.networks.heads import categorical
from velocirl.optim.flat import FlatOptimiser
from velocirl.optim.optimisers import optimiser_from

SAMPLES_PER_SECOND = Unit("samples/s", True, "{number}{prefix} samples/s")
PARAMETERS_PER_SECOND = Unit("parameters/s", True, "{number}{prefix} parameters/s")
SAMPLES = 16_384
NEEDED = ("action", "log_probability", "advantage", "target")  # of a record
SIZES = {"a 64x64 network": 9_360, "a 256x256 network": 86_544, "10M parameters": 10_000_000}
BEYOND_CACHES = 5_000_000  # parameters
TOUCHED = 7  # numbers per parameter: it and two moments are read and written, the gradient is read


def random_samples(count: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return rows of a rollout and network outputs: two logits and the value."""
    generator = np.random.default_rng(0)
    fields = [Field(name, np.float32) for name in ("value", "log_probability", "advantage", "target")]
    rows = np.zeros(count, narrow_type(rollout_type(4, Act(1, "int32", 0), fields, ["value"])))
    rows["action"] = generator.integers(0, 2, (count, 1))
    rows["log_probability"] = -generator.random(count, np.float32)
    for name in ("advantage", "target", "value"):
        rows[name] = generator.standard_normal(count, np.float32)
    return rows, generator.standard_normal((count, 3), np.float32)


class LossGradients:
    """Gradient of PPO's loss, for one output after another."""

    def __init__(self, count: int = SAMPLES) -> None:
        self.samples, self.outputs = random_samples(count)
        self.gradients = np.empty_like(self.outputs)
        self.metrics = np.zeros(1, [(name, np.float64) for name in PPO.reports])
        means = np.zeros(1, [(name, np.float32) for name in (*PPO.reports, "rows")])
        config = {"clip": 0.2, "value_coefficient": 0.5, "entropy_coefficient": 0.01}
        config |= {"value_clip": 0.0, "dual_clip": 0.0, "normalise_advantages": 0.0, "weight_limit": np.inf}
        settings = np.array([tuple(config.values())], [(name, np.float32) for name in config])
        columns = (
            self.outputs, self.samples, Shared(means), Shared(settings), self.gradients, Shared(self.metrics)
        )  # fmt: skip
        loop: Any = row_loop(loss_gradient, categorical(2))
        self._run = bind_unit(loop, columns, learning_translator("ppo loss"))

    def call(self) -> None:
        """Compute the gradients of all samples once."""
        self._run(0, len(self.samples))


def velocirl_losing() -> Timed:
    """Time the loss gradient, in samples per second."""
    loss = LossGradients()
    needed = sum(loss.samples.dtype[name].itemsize for name in NEEDED) + 2 * loss.outputs.itemsize * 3
    return Timed(loss.call, amount=SAMPLES, cost=Cost(bytes=needed))


def velocirl_descending(parameters: int) -> Timed:
    """Time steps of Adam, in parameters per second."""
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
