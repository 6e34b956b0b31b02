"""MinAtar games, compared with the original package."""

from __future__ import annotations

import importlib
import importlib.util
from itertools import cycle

import numpy as np

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
COPIES = 4096
PACKAGE_STEPS = 1000
ASKED = 30.0


@benchmark(category="environment", standard=False)
def minatar() -> Comparison:
    """Games of MinAtar through VectorEnv.step, 4096 copies, one thread, beside the package.

    Both draw actions at random and see the screen after every step; the package has one copy.
    """
    contestants = {
        title(game): vector_steps(lambda game=game: velocirl.make_vec(f"MinAtar{title(game)}-v1", COPIES, threads=1))
        for game in GAMES
    }
    peers = {game: f"the package's {title(game)}" for game in GAMES}
    for game, peer in peers.items():
        contestants[peer] = lambda game=game: package_steps(game)
    claims = [ratio(title(game), peer, at_least=ASKED) for game, peer in peers.items()]
    return Comparison(STEPS, contestants, claims, tuple(peers.values()))


def title(game: str) -> str:
    """Return a game's name as in ids: SpaceInvaders."""
    return game.title().replace("_", "")


def package_steps(game: str) -> Timed:
    """Time steps of one environment of the package, with screens and resets."""
    if importlib.util.find_spec("minatar") is None:
        raise UnavailableError("minatar is not installed")
    env = importlib.import_module("minatar").Environment(game)
    env.seed(0)
    actions = cycle(np.random.default_rng(0).choice(env.minimal_action_set(), 8 * PACKAGE_STEPS).tolist()).__next__

    def call() -> None:
        for _ in range(PACKAGE_STEPS):
            _, ended = env.act(actions())
            env.state()
            if ended:
                env.reset()

    return Timed(call, amount=PACKAGE_STEPS)
