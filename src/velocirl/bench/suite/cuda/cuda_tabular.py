"""Tabular Q-learning on a GPU, compared with one core of the same machine."""

from __future__ import annotations

import velocirl
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer
from velocirl.bench.suite.cuda.cuda_ppo import attempted, require_cuda
from velocirl.bench.suite.tables.tabular import GAME, SETTINGS, velocirl_training
from velocirl.bench.units import STEPS

FLEETS = (4096, 65_536, 1_048_576)
STEPS_PER_CALL = 2**28
FEWEST_STEPS = 1e9


def fleet_training(copies: int) -> Longer:
    """Time calls of `learn` with a fleet on the GPU."""
    require_cuda()
    agent = velocirl.QLearning(GAME, **{**SETTINGS, "num_envs": copies}, runtime="cuda")
    steps = min(STEPS_PER_CALL, 16_384 * copies)
    return Longer(Timed(lambda: agent.learn(steps), amount=steps))


@benchmark(category="device")
def cuda_q_learning() -> Comparison:
    """Q-learning of TicTacToe on one CUDA device, training steps.

    A fleet of games that learn into one table of the device; n games in the same state that take the same action count
    as n updates one after another. Whole calls of `learn`, warm, beside one core of the same machine.
    """
    core = "one core, 64 games"
    names = {f"{copies:,} games": copies for copies in FLEETS}
    contestants = {name: attempted(lambda copies=copies: fleet_training(copies)) for name, copies in names.items()}
    default, largest = list(names)[1:]
    return Comparison(
        unit=STEPS,
        contestants={**contestants, core: velocirl_training},
        claims=(value(default, at_least=FEWEST_STEPS), ratio(default, core), ratio(largest, core)),
    )
