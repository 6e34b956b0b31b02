"""Model predictive control by sampling: a fleet of copies tries thousands of futures, the best are averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller
from velocirl.controllers.layout import Layout
from velocirl.controllers.model import Estimate, FleetModel, Mismatch, Outcome, Readings
from velocirl.engine.environment import Environment

NARROWER = 0.5  # the deviation of each iteration, as a share of that of the one before
FINEST = 0.01  # the least deviation that is tried, as a share of the greatest


class MPPI(Controller):
    """Model predictive path integral control (Williams et al., 2017), with the fleet of copies as its model.

    At each decision `samples` sequences of actions around the plan of the last one are simulated for `horizon` steps,
    from the plant's present state. The new plan is the mean of the best, weighted by exp(return / temperature); with
    more `iterations` it is refined around that. A sequence that violates a constraint is worse than any other.

    The state is read from the copies that it is bound to (`evaluate` does that), or comes from `estimate`, a function
    that gives fields of the state for a batch of observations. The model is exact, unless `mismatch` has factors for
    some of its parameters by name.
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
        """`elites` is the share of sequences that are averaged, `temperature` relative to the range of their returns.

        `spread` is the deviation of what is tried, as a share of the range of an action, and `smoothness` its
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
        # Some sequences go far from the plan and some hardly leave it: nobody needs to know how good it is already.
        self._scales = np.geomspace(FINEST, 1.0, samples, dtype=np.float32)
        self._scales[0] = 0.0  # the plan itself
        self._model_of, self._estimate, self._mismatch = model, estimate, mismatch
        self._seed, self._device = seed, device

    def settle(self, layout: Layout, environment: Any) -> None:
        """Make the model; it is compiled with the first decision."""
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
        """The first action of each copy's plan; remembered are the plans, (copies, horizon, actuators)."""
        if state is None:
            self._generator = np.random.default_rng(self._seed)  # so that the same again gives the same
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
        """Better plans than these, (plants, horizon, actuators)."""
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
        """Sequences around the plans, (horizon, plants, samples, actuators); the first is the plan itself."""
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
        """What is to be had by each sequence."""
        self._model.place(states, params)
        steps = [self._model.step(actions) for actions in tried.reshape(self.horizon, -1, tried.shape[-1])]
        return judged(steps, self.gamma).reshape(len(states), self.samples)


def judged(steps: list[Outcome], gamma: float = 1.0) -> NDArray[np.float64]:
    """How good each branch is: its return, less the range of all returns for each constraint violated in a step.

    A branch that ended early, or whose reward is no number, goes on with the worst reward of any branch, but nothing
    better than 0, and with the costs of its last step: so an end is never a way out.
    """
    rewards = np.stack([step.reward for step in steps]).astype(np.float64)  # (steps, branches)
    counts = np.stack([step.alive for step in steps]) & np.isfinite(rewards)
    worst = min(0.0, float(rewards[counts].min())) if counts.any() else 0.0
    costs = np.stack([step.costs.sum(axis=1) for step in steps])
    for step in range(1, len(steps)):
        costs[step] = np.where(steps[step].alive, costs[step], costs[step - 1])
    returns = gamma ** np.arange(len(steps)) @ np.where(counts, rewards, worst)
    return returns - costs.sum(axis=0) * (np.ptp(returns) + 1.0)
