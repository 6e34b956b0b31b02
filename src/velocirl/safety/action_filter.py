"""Action filter: replaces unsafe actions by the nearest safe ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers import Controller
from velocirl.controllers.layout import layout_of
from velocirl.controllers.model import Estimate, FleetModel, Mismatch, Readings
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.safety.margins import Margins

TOWARDS = 8  # points from an action to the fallback's, which is the last of them
MOST_CORNERS = 4  # actuators up to which all corners of the action space are tried
AFTERWARDS = ("fallback", "hold")


class Filtered(NamedTuple):
    """Safe actions, and how they were chosen."""

    actions: NDArray[Any]  # (envs, actuators)
    replaced: NDArray[np.bool_]  # (envs,) whether the requested action was replaced
    emergency: NDArray[np.bool_]  # (envs,) whether no safe action was found, so that the fallback acts
    memory: Any  # state of the fallback, for the next call


class ActionFilter:
    """Predictor of the consequences of actions, in all plants at once, with a fleet of models.

    An action is safe if no constraint is violated within `horizon` steps from the plant's present state. The first step
    is the action; later steps use the fallback's actions (`then="fallback"`) or repeat it ("hold"). Candidates are
    points between the action and the fallback's, corners of the action space, and `samples` random points. The nearest
    safe candidate is taken, with each actuator scaled by its range.
    """

    def __init__(
        self,
        environment: Any,
        fallback: Any = None,
        *,
        horizon: int = 1,
        then: str = "fallback",
        constraints: Iterable[str] | None = None,
        margin: Mapping[str, float] | None = None,
        samples: int = 16,
        model: str | Environment | None = None,
        estimate: Estimate | None = None,
        mismatch: Mismatch = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """Set up; `constraints` by name, default: the critical ones, or all if none is. See `Shield` for the others."""
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        if then not in AFTERWARDS:
            raise ValueError(f"then must be one of {', '.join(AFTERWARDS)}, got {then!r}")
        layout = layout_of(environment)
        layout.require_numbers("shield")
        self._readings = Readings(environment, model, estimate, mismatch, "shield")
        native = self._readings.environment
        self._watched = watched_constraints(native, constraints)
        fallback = native.controller if fallback is None else fallback
        if fallback is None:
            raise ValueError(f"{native.id} ships no controller: give a fallback, which acts where nothing is safe")
        self._fallback = fallback.bind(environment) if isinstance(fallback, Controller) else fallback
        self._horizon, self._holds = horizon, then == "hold"
        self._low, self._high = layout.bounds
        if not (np.isfinite(self._low).all() and np.isfinite(self._high).all()):
            raise ValueError(f"a shield needs bounds for all actions of {layout.id}: they are {layout.action}")
        self._dtype = layout.action.dtype
        self._others = self._fixed_candidates(samples, np.random.default_rng(seed))
        self._margins = Margins(native, margin)
        native = self._margins.model()
        self._model = FleetModel(native, 1, device=device, seed=seed)
        self._model_of_candidates = FleetModel(native, TOWARDS + len(self._others), device=device, seed=seed)

    def filter(
        self, observations: Any, actions: Any, memory: Any, starts: NDArray[np.bool_], deterministic: bool = True
    ) -> Filtered:
        """Return safe actions for the requested ones; `memory` is from the previous result, None initially.

        The fallback's state begins when it takes over, so that it does not integrate errors of the policy.
        """
        count = len(starts)
        if memory is None:
            self._model.rewind()
            self._model_of_candidates.rewind()
        remembered, acted = (None, np.zeros(count, np.bool_)) if memory is None else memory
        begins = starts | ~acted
        backup, remembered = predicted(self._fallback, observations, remembered, begins, deterministic)
        backup = np.asarray(backup, np.float64)
        asked = np.asarray(actions, np.float64)
        wanted = np.where(np.isfinite(asked), np.clip(asked, self._low, self._high), backup)
        states, params = self._readings.read(observations)
        params = self._margins.narrow(params)
        unsafe = ~self._keeps(self._model, states, params, wanted[:, None])[:, 0]
        chosen, emergency = wanted, np.zeros(count, np.bool_)
        if unsafe.any():
            chosen = wanted.copy()
            candidates = self._candidates(wanted[unsafe], backup[unsafe])
            safe = self._keeps(self._model_of_candidates, states[unsafe], params[unsafe], candidates)
            distance = np.linalg.norm((candidates - wanted[unsafe][:, None]) / (self._high - self._low), axis=2)
            best = np.where(safe, distance, np.inf).argmin(axis=1)
            best[~safe.any(axis=1)] = TOWARDS - 1  # the fallback's own
            chosen[unsafe] = candidates[np.arange(len(best)), best]
            emergency[unsafe] = ~safe.any(axis=1)
        replaced = unsafe | ~np.isfinite(asked).all(axis=1)
        return Filtered(chosen.astype(self._dtype), replaced, emergency, (remembered, emergency))

    def _candidates(self, wanted: NDArray[np.float64], backup: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the candidates in place of unsafe actions, (envs, candidates, actuators)."""
        share = np.arange(1, TOWARDS + 1)[None, :, None] / TOWARDS
        between = wanted[:, None] + share * (backup - wanted)[:, None]
        others = np.broadcast_to(self._others, (len(wanted), *self._others.shape))
        return np.concatenate([between, others], axis=1)

    def _fixed_candidates(self, samples: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return the corners of the action space, if these are few, and random points within it."""
        width = len(self._low)
        shares = generator.random((samples, width))
        if width <= MOST_CORNERS:
            shares = np.concatenate([np.array(list(product((0.0, 1.0), repeat=width))), shares])
        return self._low + shares * (self._high - self._low)

    def _keeps(
        self, model: FleetModel, states: NDArray[Any], params: NDArray[Any], candidates: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Return whether candidates (plants, branches, actuators) satisfy the constraints, (plants, branches)."""
        model.place(states, params)
        first = candidates.reshape(-1, candidates.shape[-1])
        broken, actions, memory = np.zeros(len(first), np.bool_), first, None
        for step in range(self._horizon):
            if step and not self._holds:
                seen = model.observation
                seen = seen if np.isfinite(seen).all() else np.nan_to_num(seen)  # of branches that have failed already
                actions, memory = predicted(self._fallback, seen, memory, np.zeros(len(seen), np.bool_), True)
            outcome = model.step(actions)
            broken |= outcome.alive & (outcome.costs[:, self._watched] > 0.0).any(axis=1)
            if broken.all():
                break
        return ~broken.reshape(candidates.shape[:2])


def predicted(
    policy: Any, observations: Any, state: Any, starts: NDArray[np.bool_], deterministic: bool, masks: Any = None
) -> tuple[Any, Any]:
    """Call a policy with available arguments only, as models of other libraries do not accept the others."""
    more = {} if state is None else {"state": state, "episode_start": starts}
    if masks is not None:
        more["action_masks"] = masks
    return policy.predict(observations, deterministic=deterministic, **more)


def watched_constraints(environment: Environment, names: Iterable[str] | None) -> list[int]:
    """Return the indices of the constraints to satisfy."""
    if not environment.constraints:
        raise ValueError(f"{environment.id} has no constraints that a shield could keep: Environment(constraints=...)")
    known = [one.name for one in environment.constraints]
    if names is None:
        critical = [place for place, one in enumerate(environment.constraints) if one.critical]
        return critical or list(range(len(known)))
    for name in names:
        if name not in known:
            raise ValueError(f"{environment.id} has no constraint {name!r}{nearest(name, known)}")
    return [known.index(name) for name in names]
