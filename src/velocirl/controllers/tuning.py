"""Automatic tuning of a PID: a search over its gains and times, with a fleet of copies that try them all at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.layout import native_of
from velocirl.controllers.model import FleetModel, Outcome
from velocirl.controllers.mppi import judged
from velocirl.controllers.pid import PID, Terms

ELITES = 0.125  # the share of candidates from which the next ones are drawn
LEAST = 0.02  # the deviation, of logarithms, below which the search does not narrow
SEARCHED = ("gain", "integral_time", "derivative_time")
OBJECTIVES = ("return", "error")


def tuned(
    pid: PID,
    environment: Any,
    *,
    objective: str = "return",
    candidates: int = 64,
    rounds: int = 10,
    episodes: int = 4,
    steps: int | None = None,
    spread: float = 1.5,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> PID:
    """A PID with the same loops, and gains and times that are better in an environment; the same again by its seed.

    It searches by cross-entropy (Rubinstein, 1999) in logarithms: in each round a fleet of candidates plays the same
    episodes, and the next are drawn around the best. `spread` is the deviation of the first ones from the PID that is
    given; signs stay, and so does what is 0 or infinite: a PI controller stays one. The objective is the "return",
    where a violated constraint outweighs everything; or the "error", its integral over all loops. Episodes last
    `steps`, or as long as the environment says.
    """
    native = native_of(environment)
    if native is None:
        raise ValueError("a PID is tuned in a compiled environment: give its id, or an Environment")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    length = steps or native.max_steps
    if length is None:
        raise ValueError(f"episodes of {native.id} have no end: say how many steps= a trial takes")
    pid = pid.bind(native)
    model = FleetModel(native, candidates, device=device, seed=seed)
    start = np.array([[getattr(loop, name) for name in SEARCHED] for loop in pid.loops])  # (loops, 3)
    searched = np.isfinite(start) & (start != 0.0)
    generator = np.random.default_rng(seed)
    mean, deviation = np.zeros(start.shape), np.full(start.shape, spread)
    best, scale = mean, None
    for _ in range(rounds):
        drawn = mean + deviation * generator.standard_normal((candidates, *start.shape)) * searched
        drawn[0] = best  # so that what was found is compared with what is tried now
        model.begin(episodes, params)
        played, errors = _play(pid, model, _terms(pid, start * np.exp(drawn), episodes), length)
        if objective == "error":
            scale = np.maximum(np.median(errors, axis=0), 1e-12) if scale is None else scale
            scores = -(errors / scale).sum(axis=1)
        else:
            scores = judged(played)
        scores = scores.reshape(episodes, candidates).mean(axis=0)
        order = np.argsort(scores)[::-1][: max(2, round(ELITES * candidates))]
        best = drawn[order[0]]
        mean, deviation = drawn[order].mean(axis=0), np.maximum(drawn[order].std(axis=0), LEAST)
    found = (start * np.exp(best)).tolist()
    loops = [
        replace(loop, **dict(zip(SEARCHED, numbers, strict=True)))
        for loop, numbers in zip(pid.loops, found, strict=True)
    ]
    return PID(*loops, time_step=pid.time_step, bias=pid.bias).bind(native)


def _terms(pid: PID, numbers: NDArray[np.float64], episodes: int) -> Terms:
    """The numbers of candidates, (candidates, loops, 3), as those of all copies; each candidate plays all episodes."""
    columns = {name: np.tile(numbers[..., k], (episodes, 1)) for k, name in enumerate(SEARCHED)}
    return pid.terms._replace(**columns)


def _play(pid: PID, model: FleetModel, terms: Terms, length: int) -> tuple[list[Outcome], NDArray[np.float64]]:
    """What came of each step, and the integral of each loop's error, (copies, loops)."""
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
        errors += np.where(goes_on, error, worst) * pid.time_step  # an episode that ended goes on with its worst
        if not model.alive.any():
            break
    return played, np.nan_to_num(errors, nan=np.inf)
