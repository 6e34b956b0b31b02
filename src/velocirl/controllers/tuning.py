"""Automatic PID tuning: a search over gains and times, with a fleet that tries all candidates at once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.layout import native_of
from velocirl.controllers.model import FleetModel, Outcome, judged
from velocirl.controllers.pid import PID, Terms
from velocirl.engine.environment import Environment

ELITES = 0.125  # fraction of candidates from which the next are sampled
LEAST = 0.02  # minimum standard deviation of the logarithms: the search does not narrow below it
FINALISTS = 8  # candidates that are evaluated again on fresh starts
SEARCHED = ("gain", "integral_time", "derivative_time")
OBJECTIVES = ("return", "error")


class Validation(NamedTuple):
    """Results of a tuned PID in episodes from starts that were not used to choose it."""

    episodes: int
    mean_return: float
    violating: int  # episodes in which a constraint was violated
    stopped: int  # episodes ended by a critical constraint


def tuned(
    pid: PID,
    environment: Any,
    *,
    objective: str = "return",
    candidates: int = 64,
    rounds: int = 10,
    episodes: int = 16,
    validation: int = 256,
    steps: int | None = None,
    spread: float = 1.5,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> PID:
    """Return a PID with the same loops and better gains and times for an environment; reproducible with `seed`.

    The cross-entropy method (Rubinstein, 1999) searches in logarithms. In each round a fleet of candidates plays
    `episodes` from fresh starts, and the next candidates are sampled around the best. `spread` is the standard
    deviation of the first candidates around the given PID. Signs stay, and so do values that are 0 or infinite: a PI
    controller stays one. The objective is "return", where a violated constraint outweighs everything, or "error": the
    error integral over all loops. Episodes last `steps`, by default the environment's time limit.

    The best of the last round and the given PID are then compared on `validation` fresh starts. The winner plays as
    many others: its `validation` has the counts, and a warning reports violations.
    """
    native = native_of(environment)
    if native is None:
        raise ValueError("a PID is tuned in a compiled environment: give its id, or an Environment")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    for name, count in (
        ("candidates", candidates),
        ("rounds", rounds),
        ("episodes", episodes),
        ("validation", validation),
    ):
        if count < 1:
            raise ValueError(f"{name}={count} must be at least 1")
    length = steps or native.max_steps
    if length is None:
        raise ValueError(f"episodes of {native.id} have no end: say how many steps= a trial takes")
    pid = pid.bind(native)
    search = _Search(pid, native, objective, length, params, seed, device)
    start = np.array([[getattr(stage, name) for name in SEARCHED] for stage in pid.stages])  # (loops, 3)
    searched = np.isfinite(start) & (start != 0.0)
    generator = np.random.default_rng(seed)
    mean, deviation = np.zeros(start.shape), np.full(start.shape, spread)
    best, elites = mean, mean[None]
    for number in range(rounds):
        drawn = mean + deviation * generator.standard_normal((candidates, *start.shape)) * searched
        drawn[0] = best  # the best of the last round competes with the new samples
        scores = search.scores(start * np.exp(drawn), episodes, draw=number)
        order = np.argsort(scores)[::-1][: max(2, round(ELITES * candidates))]
        best, elites = drawn[order[0]], drawn[order]
        mean, deviation = elites.mean(axis=0), np.maximum(elites.std(axis=0), LEAST)
    finalists = start * np.exp(np.stack([mean, *elites[: FINALISTS - 2], np.zeros(start.shape)]))
    winner = finalists[search.scores(finalists, validation, draw=rounds).argmax()]
    rows: list[dict[str, float]] = [dict(zip(SEARCHED, row, strict=True)) for row in winner.tolist()]
    numbers = iter(rows)
    loops = [loop.with_numbers([next(numbers) for _ in loop.chain]) for loop in pid.loops]
    found = PID(*loops, time_step=pid.time_step, bias=pid.bias).bind(native)
    found.validation = search.validated(winner, validation, draw=rounds + 1)
    _warn(native, found.validation)
    return found


class _Search:
    """Simulation of candidates: scores all of them, and counts the violations of one."""

    def __init__(
        self,
        pid: PID,
        environment: Environment,
        objective: str,
        length: int,
        params: Mapping[str, Any] | None,
        seed: int,
        device: str,
    ) -> None:
        self._pid, self._environment, self._objective, self._length = pid, environment, objective, length
        self._params, self._seed, self._device = params, seed, device
        self._models: dict[int, FleetModel] = {}  # by the number of candidates
        self._scale: NDArray[np.float64] | None = None

    def scores(self, numbers: NDArray[np.float64], episodes: int, *, draw: int) -> NDArray[np.float64]:
        """Return the score of each of (candidates, loops, 3) numbers, all over the same fresh starts."""
        played, errors = self._play(numbers, episodes, draw)
        if self._objective == "error":
            if self._scale is None:
                self._scale = np.maximum(np.median(errors, axis=0), 1e-12)
            scores = -(errors / self._scale).sum(axis=1)
        else:
            scores = judged(played)
        return scores.reshape(episodes, len(numbers)).mean(axis=0)

    def validated(self, numbers: NDArray[np.float64], episodes: int, *, draw: int) -> Validation:
        """Return the results of one candidate in fresh episodes."""
        played, _ = self._play(numbers[None], episodes, draw)
        alive = np.stack([one.alive for one in played])
        rewards = np.where(alive, np.stack([one.reward for one in played]), 0.0).astype(np.float64)
        violated = alive[..., None] & np.stack([one.costs > 0.0 for one in played])  # (steps, episodes, constraints)
        critical = [one.critical for one in self._environment.constraints]
        return Validation(
            episodes,
            float(rewards.sum(axis=0).mean()),
            int(violated.any(axis=(0, 2)).sum()),
            int(violated[..., critical].any(axis=(0, 2)).sum()),
        )

    def _play(
        self, numbers: NDArray[np.float64], episodes: int, draw: int
    ) -> tuple[list[Outcome], NDArray[np.float64]]:
        count = len(numbers)
        if count not in self._models:
            self._models[count] = FleetModel(self._environment, count, device=self._device, seed=self._seed)
        model = self._models[count]
        model.begin(episodes, self._params, draw=draw)
        return _play(self._pid, model, _terms(self._pid, numbers, episodes), self._length)


def _warn(environment: Environment, found: Validation) -> None:
    """Warn if the winner of a search violates constraints from fresh starts."""
    if not found.violating:
        return
    stops = f", and {found.stopped} ended by a critical one" if found.stopped else ""
    warnings.warn(
        f"{environment.id}: in {found.violating} of {found.episodes} fresh episodes the tuned PID violates a"
        f" constraint{stops}: tune it with more episodes= or from other gains",
        stacklevel=4,
    )


def _terms(pid: PID, numbers: NDArray[np.float64], episodes: int) -> Terms:
    """Return the terms of all environments for numbers (candidates, loops, 3); each candidate plays all episodes."""
    columns = {name: np.tile(numbers[..., k], (episodes, 1)) for k, name in enumerate(SEARCHED)}
    return pid.terms._replace(**columns)


def _play(pid: PID, model: FleetModel, terms: Terms, length: int) -> tuple[list[Outcome], NDArray[np.float64]]:
    """Simulate; returns the result of each step, and each loop's error integral, (environments, loops)."""
    count = len(terms.gain)
    played, state, starts = [], None, np.zeros(count, np.bool_)
    errors, worst = np.zeros(terms.gain.shape), np.zeros(terms.gain.shape)
    for _ in range(length):
        actions, state = pid.control(terms, model.observation, state, starts)
        outcome = model.step(actions)
        played.append(outcome)
        setpoints, signals = pid.read(model.observation)
        error, goes_on = np.abs(setpoints - signals), model.alive[:count, None]
        worst = np.where(goes_on, np.maximum(worst, error), worst)
        errors += np.where(goes_on, error, worst) * pid.time_step  # an ended episode continues with its worst error
        if not model.alive.any():
            break
    return played, np.nan_to_num(errors, nan=np.inf)
