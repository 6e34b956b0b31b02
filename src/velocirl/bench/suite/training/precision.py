"""Effect of single, TF32 and half precision, and of torch's compiler, on training speed on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Sampler
from velocirl.bench.registry import benchmark
from velocirl.bench.suite.cuda.cuda_ppo import LARGE, attempted, velocirl_training
from velocirl.bench.suite.training.ppo import Work
from velocirl.bench.units import STEPS

BASE = "float32"
MANNERS: dict[str, dict[str, Any]] = {
    BASE: {"precision": "float32"},
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "float32, compiled": {"precision": "float32", "compile": True},
    "bf16, compiled": {"precision": "bf16", "compile": True},
}
WIDE = Work(16384, 32, epochs=1, minibatch_size=16384 * 32 // 4)
PIXELS = Work(2048, 32, epochs=1, minibatch_size=2048 * 32 // 4)


def comparison(environment: str, work: Work, **given: Any) -> Comparison:
    """Compare the same training in every precision, compiled or not, with plain float32."""

    def contestant(manner: dict[str, Any]) -> Callable[[], Sampler]:
        return attempted(lambda: velocirl_training(environment, work, **given, **manner))

    return Comparison(
        unit=STEPS,
        contestants={name: contestant(manner) for name, manner in MANNERS.items()},
        claims=[ratio(name, BASE) for name in MANNERS if name != BASE],
    )


@benchmark(category="device")
def precision_small() -> Comparison:
    """Precision of training PPO on one CUDA device, MLP 64x64, CartPole-v1, 65536 copies x 32 steps.

    1 epoch, 4 minibatches; policy and value share the network. Only its products are in another precision: parameters,
    advantages, loss and optimiser stay in float32. Compiled is by torch.compile.
    """
    return comparison("CartPole-v1", LARGE)


@benchmark(category="device")
def precision_wide() -> Comparison:
    """Precision of training PPO on one CUDA device, MLP 512x512, CartPole-v1, 16384 copies x 32 steps.

    1 epoch, 4 minibatches; policy and value share the network.
    """
    return comparison("CartPole-v1", WIDE, hidden=(512, 512))


@benchmark(category="device")
def precision_pixels() -> Comparison:
    """Precision of training PPO on one CUDA device, two convolutions, CatchPixels-v0, 2048 copies x 32 steps.

    `cnn(32, 64) mlp(256)` reads pictures of 20x10 grey pixels; 1 epoch, 4 minibatches; policy and value share the
    network.
    """
    return comparison("CatchPixels-v0", PIXELS, network="cnn(32, 64) mlp(256)")
