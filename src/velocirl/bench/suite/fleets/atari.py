"""Atari's Pong with the preprocessing of the literature, by velocirl and by ALE itself."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS
from velocirl.training.source import Source

COPIES = 4
GAME = "ALE/Pong-v5"


@benchmark(category="vector", standard=False)
def atari_pong() -> Comparison:
    """Atari's Pong from its screens, 4 copies.

    A step is four frames of the emulator, gray, of 84 by 84 and stacked; sticky actions, no-ops, clipped rewards. What
    velocirl does is around ALE's own vector environment, which is beside it: as `make_vec` gives it, and as agents
    have it, without copies of what it returns. Gymnasium's wrappers step in Python.
    """
    ours, ale = "velocirl, make_vec", "ALE's own vector environment"
    return Comparison(
        unit=STEPS,
        contestants={
            ours: vector_steps(lambda: velocirl.make_vec(f"gym:{GAME}", COPIES, preprocess="atari")),
            "velocirl, in an agent": vector_steps(_in_an_agent),
            ale: vector_steps(_ale),
            "Gymnasium's wrappers": vector_steps(_gymnasium),
        },
        claims=(
            ratio(ours, ale, at_least=0.9),
            ratio("velocirl, in an agent", ale, at_least=0.9),
            ratio(ours, "Gymnasium's wrappers"),
        ),
        peers=(ale, "Gymnasium's wrappers"),
    )


def _in_an_agent() -> Any:
    return Source(f"gym:{GAME}", preprocess="atari").make_copies(COPIES, seed=0, threads=1, workers=None)


def _ale() -> Any:
    _require_ale()
    # Matches velocirl's game: no FIRE after a reset (Pong does not need it), and the sticky actions of version 5.
    options = {"use_fire_reset": False, "repeat_action_probability": 0.25, "autoreset_mode": AutoresetMode.SAME_STEP}
    return gymnasium.make_vec(GAME, COPIES, vectorization_mode="vector_entry_point", **options)


def _gymnasium() -> Any:
    _require_ale()

    def one() -> gymnasium.Env:
        return FrameStackObservation(AtariPreprocessing(gymnasium.make(GAME, frameskip=1)), 4)

    return gymnasium.vector.SyncVectorEnv([one] * COPIES, autoreset_mode=AutoresetMode.SAME_STEP)


def _require_ale() -> None:
    try:
        import ale_py  # noqa: F401 - which registers its games
    except ImportError as error:
        raise UnavailableError('needs ale-py: pip install "velocirl[atari]"') from error
