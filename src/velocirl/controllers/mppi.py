"""Model predictive control by sampling: a fleet simulates thousands of futures; the best are averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller
from velocirl.controllers.layout import Layout
from velocirl.controllers.model import Estimate, FleetModel, Mismatch, Readings, judged
from velocirl.engine.environment import Environment

NARROWER = 0.5  # standard deviation of each iteration, as a fraction of the previous one's
FINEST = 0.01  # smallest standard deviation tried, as a fraction of the largest


class MPPI(Controller):
    """Model predictive path integral control (Williams et al., 2017), with a fleet as its model.

    Each decision simulates `samples` action sequences around the previous plan for `horizon` steps from the plant's
    current state. The new plan is the mean of the best, weighted by exp(return / temperature). Further `iterations`
    refine the plan around that mean. A sequence that violates a constraint is worse than any other.

    The state is read from the environments that the controller is bound to (`evaluate` binds it). Otherwise `estimate`
    computes it: a function from a batch of observations to state fields. The model is exact, unless `mismatch` has
    factors for some of its parameters by name.
    """

    def __init__(
        self,
        *,
        horizon: int = 80,
        samples: int = 256,
        iterations: int = 1,
        spread: float = 0.3,
        smoothness: float = 0.9,
        elites: float = 0.05,
        temperature: float = 0.3,
        gamma: float = 1.0,
        model: str | Environment | None = None,
        estimate: Estimate | None = None,
        mismatch: Mismatch = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """`elites` is the fraction of sequences averaged; `temperature` is relative to the range of their returns.

        `spread` is the standard deviation of the samples, as a fraction of an action's range. `smoothness` is their
        correlation from one step to the next.
        """
        for name, value in (("horizon", horizon), ("samples", samples), ("iterations", iterations)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name, value in (("spread", spread), ("elites", elites), ("temperature", temperature)):
            if not 0.0 < value <= 10.0:
                raise ValueError(f"{name} must be above 0, got {value}")
        if not 0.0 <= smoothness < 1.0:
            raise ValueError(f"smoothness must be at least 0 and below 1, got {smoothness}")
        self.horizon, self.samples, self.iterations, self.gamma = horizon, samples, iterations, gamma
        self._spread, self._smoothness, self._temperature = spread, smoothness, temperature
        self._best = max(1, min(samples, round(elites * samples)))
        # Scales range from tiny to full: it is unknown how good the plan is already.
        self._scales = np.geomspace(FINEST, 1.0, samples, dtype=np.float32)
        self._scales[0] = 0.0  # the plan itself
        self._model_of, self._estimate, self._mismatch = model, estimate, mismatch
        self._seed, self._device = seed, device

    def settle(self, layout: Layout, environment: Any) -> None:
        """Build the model; it is compiled at the first decision."""
        layout.require_numbers("MPPI")
        self._low, self._high = (bound.astype(np.float32) for bound in layout.bounds)
        if not (np.isfinite(self._low).all() and np.isfinite(self._high).all()):
            raise ValueError(f"an MPPI needs bounds for all actions of {layout.id}: they are {layout.action}")
        self._readings = Readings(environment, self._model_of, self._estimate, self._mismatch, "MPPI")
        self._model = FleetModel(self._readings.environment, self.samples, device=self._device, seed=self._seed)
        self._generator = np.random.default_rng(self._seed)

    def act(
        self,
        observations: Any,
        state: Any,
        starts: NDArray[np.bool_],
        masks: Any,  # noqa: ARG002
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the first actions of the plans, and as state the plans (environments, horizon, actuators)."""
        if state is None:
            self._generator = np.random.default_rng(self._seed)  # so that a repeated run gives the same actions
            self._model.rewind()
        states, params = self._readings.read(observations)
        middle = (self._low + self._high) / 2.0
        plans = np.broadcast_to(middle, (len(states), self.horizon, len(middle)))
        if state is not None:
            later = np.concatenate([state[:, 1:], state[:, -1:]], axis=1)
            plans = np.where(starts[:, None, None], plans, later)
        for iteration in range(self.iterations):
            deviation = NARROWER**iteration * self._spread * (self._high - self._low)
            plans = self._refine(states, params, plans, deviation)
        return plans[:, 0].astype(self.layout.action.dtype), plans

    def _refine(
        self, states: NDArray[Any], params: NDArray[Any], plans: NDArray[np.float32], deviation: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return improved plans, (plants, horizon, actuators)."""
        tried = self._try(plans, deviation)
        returns = self._simulate(states, params, tried)
        chosen = np.argpartition(returns, -self._best, axis=1)[:, -self._best :]
        good = np.take_along_axis(returns, chosen, axis=1)
        best, worst = good.max(axis=1, keepdims=True), good.min(axis=1, keepdims=True)
        weights = np.exp((good - best) / (self._temperature * np.maximum(best - worst, 1e-12)))
        weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        sequences = np.stack([tried[:, plant, rows] for plant, rows in enumerate(chosen)])
        return np.einsum("ps,phsa->pha", weights, sequences)

    def _try(self, plans: NDArray[np.float32], deviation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sample sequences around the plans, (horizon, plants, samples, actuators); sample 0 is the plan itself."""
        plants, horizon, width = plans.shape
        noise = self._generator.standard_normal((horizon, plants, self.samples, width), np.float32)
        keep = np.float32(self._smoothness)
        for step in range(1, horizon):
            noise[step] = keep * noise[step - 1] + np.sqrt(1.0 - keep * keep) * noise[step]
        noise *= self._scales[:, None]
        tried = noise * deviation + plans.transpose(1, 0, 2)[:, :, None]
        return np.clip(tried, self._low, self._high, out=tried)

    def _simulate(
        self, states: NDArray[Any], params: NDArray[Any], tried: NDArray[np.float32]
    ) -> NDArray[np.float64]:  # (plants, samples)
        """Simulate the sequences and return their scores."""
        self._model.place(states, params)
        steps = [self._model.step(actions) for actions in tried.reshape(self.horizon, -1, tried.shape[-1])]
        return judged(steps, self.gamma).reshape(len(states), self.samples)
