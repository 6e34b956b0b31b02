"""Mean returns of known policies, by which the scores of others are normalised."""

from __future__ import annotations

from contextlib import closing

from velocirl.controllers import Random, bound
from velocirl.training.evaluation import MOST_COPIES, Model, evaluate
from velocirl.training.source import Source

EPISODES = 100


def measure_references(
    source: Source, expert: Model | None, seed: int, *, episodes: int = EPISODES, device: str = "cpu"
) -> dict[str, float]:
    """What random actions return, the controller that comes with an environment, and an expert where one is given."""
    if source.native is None:
        return {}
    policies = {"random": Random(seed), "operator": source.native.controller, "expert": expert}
    return {name: mean_return(one, source, seed, episodes, device) for name, one in policies.items() if one is not None}


def mean_return(model: Model, source: Source, seed: int, episodes: int, device: str = "cpu") -> float:
    """The mean return of a model over some episodes."""
    with closing(source.make_evaluation(min(episodes, MOST_COPIES), seed, device)) as envs:
        return evaluate(bound(model, envs), envs, episodes, seed).mean_return
