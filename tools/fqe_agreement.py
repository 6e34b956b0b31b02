"""Whether fitted Q evaluation ranks policies as their true returns do: python tools/fqe_agreement.py [ENV ...].

For each environment, policies from good to bad are a good controller, more and more of whose action is replaced by a
constant one. Data are of random actions, of the controller and of the policy half-way, both with noise.
Prints a table in Markdown: what each policy returns in 100 episodes, what fitted Q evaluation says
without any, and the rank correlation of the two.
"""

import sys
from math import atan2

import numpy as np

import velocirl
from velocirl.controllers import Random
from velocirl.engine import registry
from velocirl.judging.acting import actions_at_recorded
from velocirl.judging.coverage import coverage_of

SHARES = {  # of the controller; those of the reactor are small, as it returns the same within 2% from 40% on
    "Pendulum-v1": (1.0, 0.8, 0.6, 0.4, 0.2, 0.0),
    "ChemicalReactor-v0": (1.0, 0.3, 0.2, 0.15, 0.1, 0.0),
}
FITS = 3
STEPS = {"Pendulum-v1": 20_000, "ChemicalReactor-v0": 36_000}  # of each kind of data


class Blend:
    """A share of a controller's action, and the rest of a constant one."""

    def __init__(self, controller, share, constant):
        self._controller, self._share, self._constant = controller, share, constant
        self.__name__ = f"{share:.0%} of the controller"

    def predict(self, observation, state=None, episode_start=None, **_):
        """The actions for a batch, and what the controller remembers."""
        actions, state = self._controller.predict(observation, state, episode_start)
        return (self._share * actions + (1.0 - self._share) * self._constant).astype(np.float32), state


class SwingUp:
    """Brings energy into a pendulum until it is nearly upright, and holds it there."""

    def predict(self, observation, state=None, episode_start=None, **_):  # noqa: ARG002 - it remembers nothing
        """The torque for each row."""
        return np.array([[self._torque(*one)] for one in observation], np.float32), None

    def _torque(self, cosine, sine, speed):
        angle, energy = atan2(sine, cosine), speed**2 / 6 + 5 * (cosine - 1)
        wanted = -(12 * angle + 3 * speed) if abs(angle) < 0.4 else -2 * energy * speed
        return min(max(wanted, -2.0), 2.0)


def controller_of(environment):
    shipped = registry.find(environment).controller
    return SwingUp() if shipped is None else shipped.bind(environment)


def main(environments):
    for environment in environments or STEPS:
        controller, space, steps = controller_of(environment), registry.find(environment).action, STEPS[environment]
        policies = [Blend(controller, share, (space.low + space.high) / 2) for share in SHARES[environment]]
        kinds = [(Random(1), 0.0), (controller, 0.3), (Blend(controller, 0.5, (space.low + space.high) / 2), 0.3)]
        data = velocirl.Dataset.concatenate(
            [
                velocirl.record_dataset(policy, environment, steps=steps, noise=noise, seed=seed)
                for seed, (policy, noise) in enumerate(kinds)
            ]
        )
        print(f"\n{environment}, {data.episodes} episodes that return {data.returns().mean():,.1f} on average\n")
        print(
            "| policy | true return | estimate | 95% interval | unusual actions |\n| --- | ---: | ---: | ---: | ---: |"
        )
        truths, estimates = [], []
        for policy in policies:
            truth = velocirl.evaluate(policy, environment, 100, 7).mean_return
            found = velocirl.fitted_q_evaluation(policy, data, fits=FITS)
            unusual = coverage_of(data, actions_at_recorded(policy, data)).unusual
            low, high = found.interval
            truths.append(truth)
            estimates.append(found.mean_return)
            print(f"| {policy.__name__} | {truth:,.1f} | {estimates[-1]:,.1f} | {low:,.1f} to {high:,.1f} |"
                  f" {unusual:.0%} |", flush=True)  # fmt: skip
        ranks = [np.argsort(np.argsort(values)) for values in (truths, estimates)]
        print(
            f"\nRank correlation {np.corrcoef(*ranks)[0, 1]:.2f}; of values {np.corrcoef(truths, estimates)[0, 1]:.2f}."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
