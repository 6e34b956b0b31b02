"""Off-policy training on a GPU with steps and updates overlapped on two streams, compared with sequential execution."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer
from velocirl.bench.suite.cuda.cuda_ppo import attempted, require_cuda
from velocirl.bench.units import NUMBER, STEPS, UPDATES, Unit

ENVIRONMENT = "Platformer-v0"
COPIES, BATCH, ROUNDS = 512, 512, 256  # rounds: steps of each environment per call
SETTINGS: dict[str, Any] = {
    "num_envs": COPIES, "batch_size": BATCH, "train_every": COPIES, "gradient_steps": 1, "network": "nature",
    "activation": "relu", "buffer_size": 131_072, "learning_starts": 8 * COPIES, "learning_rate": 1e-4,
    "learning_rate_schedule": "constant", "double": True, "dueling": False, "n_step": 1, "priority": "none",
    "target_every": 500, "tau": 1.0, "gamma": 0.99, "seed": 0, "device": "cuda",
}  # fmt: skip
TOGETHER, IN_TURN = "overlapped, two streams", "one after the other"
MANNERS = {TOGETHER: {"overlap": True}, IN_TURN: {"overlap": False}}


def make_agent(manner: str, **given: Any) -> velocirl.DQN:
    """Create an agent that is past its random actions and captured."""
    agent = velocirl.DQN(ENVIRONMENT, **{**SETTINGS, **MANNERS[manner], **given})
    learn(agent)
    return agent


def learn(agent: velocirl.DQN) -> None:
    """Train for `ROUNDS` steps per environment, and wait for the device."""
    agent.learn(ROUNDS * agent.config.num_envs, callbacks=lambda _: None)
    require_cuda().synchronize()


def training(manner: str, amount: int, **given: Any) -> Longer:
    """Time calls of `learn`; `amount` is the work counted for one step of all environments."""
    agent = make_agent(manner, **given)
    return Longer(Timed(lambda: learn(agent), amount=ROUNDS * amount))


def busy(manner: str, **given: Any) -> Counted:
    """Measure the fraction of wall time in which an update is on the device."""
    agent = make_agent(manner, **given)

    def share() -> float:
        began = perf_counter()
        learn(agent)  # resets the phase times
        return agent.phases["update"] / (perf_counter() - began)

    return Counted(share)


def comparison(unit: Unit, amount: int, at_least: float) -> Comparison:
    """Compare overlapped with sequential execution in one unit."""
    return Comparison(
        unit=unit,
        contestants={manner: attempted(partial(training, manner, amount)) for manner in MANNERS},
        claims=(value(TOGETHER, at_least=at_least), ratio(TOGETHER, IN_TURN)),
    )


@benchmark(category="device")
def cuda_overlap() -> Comparison:
    """Training DQN on Platformer-v0 on one CUDA device, steps of the environment while updates run.

    512 copies and an update of 512 transitions for each of their steps; the network of Mnih et al. (2015), double,
    TF32, frames stored once, a memory of 131,072 transitions. Whole calls of `learn`, warm, metrics and a callback
    included.
    """
    return comparison(STEPS, COPIES, 100_000)


@benchmark(category="device")
def cuda_overlap_updates() -> Comparison:
    """The same, counted in updates of 512 transitions."""
    return comparison(UPDATES, 1, 200)


@benchmark(category="device")
def cuda_overlap_busy() -> Comparison:
    """The same: the share of the wall time in which an update is on the device, by events of the device's own."""
    return Comparison(
        unit=NUMBER,
        contestants={manner: attempted(partial(busy, manner)) for manner in MANNERS},
        claims=(value(TOGETHER, at_least=0.85),),
    )
