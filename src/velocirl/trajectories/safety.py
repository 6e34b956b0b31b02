"""Evaluation of a policy by return and safety, compared with random actions and controllers.

It covers scenarios and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from velocirl.controllers import Random
from velocirl.training.source import Given, Source
from velocirl.trajectories.alarms import Alarm, alarms_of
from velocirl.trajectories.figures import (
    COST,
    GAP,
    RETURN,
    SCORE,
    STOPS,
    Estimate,
    Figures,
    estimate,
    estimates,
    figures_of,
    normalised,
)
from velocirl.trajectories.policies import Policy, model_from, name_of
from velocirl.trajectories.responses import Response, step_responses
from velocirl.trajectories.rollout import in_scenario, played, source_for
from velocirl.trajectories.trajectory import Trajectory

SEEDS, EPISODES = 5, 10
AS_IT_IS = "as it is"  # scenario name of an environment without scenarios
RANDOM, CONTROLLER = "random", "controller"


@dataclass(frozen=True)
class Judged:
    """Results of one policy in one scenario."""

    figures: Mapping[str, Estimate]
    trajectory: Trajectory = field(repr=False)  # of the seed in which the evaluated policy had its worst episode
    worst: int = 0  # index of that episode
    alarms: Sequence[tuple[int, Alarm]] = field(default=(), repr=False)  # by seed, the worst episode's first


@dataclass(frozen=True)
class SafetyEvaluation:
    """Safety and return of a policy, by scenario, compared with other policies."""

    environment: str
    policy: str
    seeds: tuple[int, ...]
    episodes: int  # per seed
    time_unit: str
    units: Mapping[str, str]  # by constraint
    scenarios: Mapping[str, Mapping[str, Judged]]
    responses: Sequence[Response] = field(default=(), repr=False)  # step responses, in the first scenario

    def __str__(self) -> str:
        from velocirl.trajectories.telling import in_words

        return in_words(self)

    def as_dict(self) -> dict[str, Any]:
        """Return all metrics as JSON-compatible values."""
        from velocirl.trajectories.telling import as_dict

        return as_dict(self)

    def save(self, path: str | Path) -> Path:
        """Write a file by its ending: .json (all metrics) or .html (a report for a browser)."""
        from velocirl.trajectories.report import save_report

        return save_report(self, path)


def evaluate_safety(
    policy: Policy,
    env: Given | None = None,
    scenarios: Sequence[str] | None = None,
    seeds: int | Sequence[int] = SEEDS,
    episodes: int = EPISODES,
    *,
    params: Mapping[str, Any] | None = None,
    deterministic: bool = True,
    compare: Mapping[str, Policy] | None = None,
    max_steps: int | None = None,
    responses: bool = False,
    device: str = "cpu",
    watch: Callable[[str, str, int], Any] | None = None,
) -> SafetyEvaluation:
    """Evaluate a policy by return and safety, compared with random actions and the environment's own controller.

    In each scenario (default: all of the environment), with each seed, every policy plays `episodes` from the same
    initial states. Returns and scores are interquartile means over seeds with a 95% bootstrap interval. Violations and
    stops are counts over all episodes of all seeds with an exact binomial interval; costs and times are means over all
    episodes. `compare` has more policies by name, such as `{"mpc": MPPI()}`. With `responses`, step responses are
    recorded too, for a report. `watch` is called with scenario, policy and seed before each run.
    """
    model = model_from(policy, env)
    source = source_for(model, env)
    _require_constraints(source)
    chosen, numbers = _scenarios(source, scenarios), _seeds(seeds)
    rivals = _rivals(source, compare)
    name = name_of(policy) if name_of(policy) not in rivals else f"{name_of(policy)}, judged"
    # Other policies see the raw environment, whatever frames an agent uses.
    bare = Source(source.given, source.own_params, scenario=source.scenario)
    players = {name: (source, lambda _: model), **{rival: (bare, make) for rival, make in rivals.items()}}
    options = {"deterministic": deterministic, "max_steps": max_steps, "device": device}

    def play(player: str, scenario: str | None, seed: int) -> Trajectory:
        if watch is not None:
            watch(scenario or AS_IT_IS, player, seed)
        where, make = players[player]
        here = in_scenario(where, scenario, params)
        found = played(make(seed), here, episodes, seed, policy=player, scenario=scenario, **options)
        if found.cost is None:
            raise ValueError(_unconstrained(source))
        return found

    judged: dict[str, dict[str, Judged]] = {}
    for scenario in chosen:
        episodes_of = {player: [play(player, scenario, seed) for seed in numbers] for player in players}
        judged[scenario or AS_IT_IS] = _judge(episodes_of)
    first = judged[chosen[0] or AS_IT_IS][name].trajectory
    units = {constraint: trace.unit for constraint, trace in first.constraints.items()}
    answers: list[Response] = []
    if responses:
        models = {name: model} | {rival: make(0) for rival, make in rivals.items() if rival == CONTROLLER}
        answers = step_responses(models, in_scenario(source, chosen[0], params), numbers[0], device)
    return SafetyEvaluation(source.id, name, numbers, episodes, first.time_unit, units, judged, answers)


def _judge(recorded: Mapping[str, Sequence[Trajectory]]) -> dict[str, Judged]:
    """Return the metrics of all policies in a scenario, the evaluated one's first, including comparisons."""
    by_seed = {name: [figures_of(one) for one in some] for name, some in recorded.items()}
    found = {name: estimates(seeds) for name, seeds in by_seed.items()}
    for name, figures in found.items():
        returns = figures[RETURN].values
        if CONTROLLER in found:
            ends = found[RANDOM][RETURN].value, found[CONTROLLER][RETURN].value
            if (score := normalised(returns, *ends)) is not None:
                figures[SCORE] = score
        for rival, others in found.items():
            if rival not in (name, RANDOM) and rival != next(iter(found)):
                pairs = zip(returns, others[RETURN].values, strict=True)
                figures[f"{GAP}/{rival}"] = estimate([mine - theirs for mine, theirs in pairs])
    seed, episode = worst_episode(next(iter(by_seed.values())))
    return {
        name: Judged(figures, recorded[name][seed], episode, _alarms(recorded[name], seed, episode))
        for name, figures in found.items()
    }


def worst_episode(seeds: Sequence[Figures]) -> tuple[int, int]:
    """Return seed index and episode of the worst episode: one with an emergency stop, else the highest cost.

    Of equal ones it is the first; without costs it is the one with the lowest return.
    """
    places = [(seed, episode) for seed, one in enumerate(seeds) for episode in range(len(one[RETURN]))]

    def badness(place: tuple[int, int]) -> tuple[bool, float, float]:
        figures, episode = seeds[place[0]], place[1]
        stopped = STOPS in figures and bool(figures[STOPS][episode])
        return stopped, float(figures[COST][episode]), -float(figures[RETURN][episode])

    return max(places, key=badness)


def _alarms(seeds: Sequence[Trajectory], seed: int, episode: int) -> list[tuple[int, Alarm]]:
    """Return the alarms of all seeds, those of the worst episode first."""
    found = [(place, alarm) for place, one in enumerate(seeds) for alarm in alarms_of(one)]
    found.sort(key=lambda one: (one[0], one[1].episode) != (seed, episode))
    return [(number if (number := seeds[place].seed) is not None else place, alarm) for place, alarm in found]


def _rivals(source: Source, compare: Mapping[str, Policy] | None) -> dict[str, Callable[[int], Any]]:
    """Return the policies to compare with, each as a function of the seed."""
    rivals: dict[str, Callable[[int], Any]] = {}
    if source.native is not None and source.native.controller is not None:
        controller = source.native.controller
        rivals[CONTROLLER] = lambda _: controller
    for name, one in (compare or {}).items():
        if name in (RANDOM, CONTROLLER):
            raise ValueError(f"compare= names {name!r}, which is compared with anyway: give it another name")
        rival = model_from(one, source.given)
        rivals[name] = lambda _, rival=rival: rival
    return {**rivals, RANDOM: Random}


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    return numbers


def _scenarios(source: Source, asked: Sequence[str] | None) -> list[str | None]:
    """Return the requested scenarios, or all of them."""
    known = {} if source.native is None else source.native.scenarios
    if asked is None:
        return [*known] or [None]
    if isinstance(asked, str) or not asked:
        raise ValueError(f"scenarios must be a list of names, got {asked!r}")
    for name in asked:
        in_scenario(source, name)  # raises before anything is played
    return [*asked]


def _require_constraints(source: Source) -> None:
    if source.native is not None and not source.native.constraints:
        raise ValueError(_unconstrained(source))


def _unconstrained(source: Source) -> str:
    where = "its infos have no 'cost'" if source.native is None else "give its Environment constraints=(...)"
    return f"{source.id} has no constraints that a policy could be judged by: {where}"
