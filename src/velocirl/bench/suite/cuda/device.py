"""Fleet on a GPU: the fused loop, and one launch per step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, value
from velocirl.bench.machine.arithmetic import fleet_bytes
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import STEPS

COPIES = 1 << 20
FUSED_STEPS, LAUNCHES = 256, 32
GAME_COPIES, GAME_STEPS = 1 << 19, 64


@benchmark(category="device")
def cuda_loop() -> Comparison:
    """CartPole-v1 on one CUDA device, 1,048,576 copies.

    Fused: random actions, many steps in one launch. One launch per step: the engine's own step, without the interface.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl, fused": lambda: _loop(lambda fleet: fleet.run_randomly(FUSED_STEPS), FUSED_STEPS),
            "velocirl, one launch per step": lambda: _loop(_launches, LAUNCHES),
        },
        claims=(
            value("velocirl, fused", at_least=12e9),
            value("velocirl, one launch per step", at_least=4e9),
        ),
    )


@benchmark(category="device", standard=False)
def cuda_minatar() -> Comparison:
    """Games of MinAtar on one CUDA device, 524,288 copies, fused.

    Random actions, many steps in one launch; screens are written after every step.
    """
    games = [one for one in velocirl.list_envs() if one.startswith("MinAtar")]
    return Comparison(
        unit=STEPS,
        contestants={one: partial(_loop, _fused_games, GAME_STEPS, one, GAME_COPIES) for one in games},
        claims=[value(one, at_least=200e6) for one in games],
    )


def _fused_games(fleet: Any) -> None:
    fleet.run_randomly(GAME_STEPS)


def _launches(fleet: Any) -> None:
    for _ in range(LAUNCHES):
        fleet.target.advance()


def _loop(run: Callable[[Any], None], steps: int, name: str = "CartPole-v1", copies: int = COPIES) -> Timed:
    if importlib.util.find_spec("numba_cuda") is None:
        raise UnavailableError("numba-cuda is not installed")
    from velocirl.engine.targets.cuda import cuda  # needs numba-cuda

    if not cuda.is_available():
        raise UnavailableError("no CUDA device")
    fleet: Any = velocirl.make_vec(name, copies, seed=0, device="cuda", copy=False)
    fleet.reset()

    def call() -> None:
        run(fleet)
        cuda.synchronize()

    # The fused loop keeps an environment's state in registers; one launch per step reads and writes it.
    cost = Cost(bytes=fleet_bytes(fleet.copies), device="cuda") if run is _launches else None
    return Timed(call, amount=copies * steps, closing=fleet.close, cost=cost)
