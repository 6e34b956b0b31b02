"""Compare judgements by recorded data with the truth, and print tables in Markdown.

    python tools/fqe_agreement.py returns [ENV ...]
    python tools/fqe_agreement.py stops [PLANT ...] [--seed N]

`returns`: policies from good to bad are a good controller, a growing part of its action replaced by a constant one.
Data are of random actions, of the controller and of the policy half-way, both with noise. The table has the returns of
100 episodes, the estimates of fitted Q evaluation, and their rank correlation.

`stops`: safe and unsafe policies on plants with critical constraints, one of them from the tests. Each is judged by
`operator` data (the controller with noise of 0.1: no stops) or by `trials` (also random actions, and a mixture of the
controller with a dangerous constant action). Unsafe policies stop in more than 5% of 200 episodes.
"""

import argparse
import sys
from math import atan2
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from two_tanks import make_two_tanks

import velocirl
from velocirl.controllers import Random
from velocirl.engine import registry
from velocirl.judging.acting import actions_at_recorded
from velocirl.judging.coverage import coverage_of
from velocirl.judging.stops import MAX_STOPS, stop_risk

SHARES = {  # of the controller; those of the reactor are small, as it returns the same within 2% from 40% on
    "Pendulum-v1": (1.0, 0.8, 0.6, 0.4, 0.2, 0.0),
    "ChemicalReactor-v0": (1.0, 0.3, 0.2, 0.15, 0.1, 0.0),
}
FITS = 3  # of returns
UPDATES, JUDGED = 3000, 2000  # of the learned policies, and of each fit for stops
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


class Plant:
    """Plant with its controller, and a constant action that is dangerous."""

    def __init__(self, env, dangerous, safe, unsafe, learned=()):
        self.env = env
        self.native = registry.find(env) if isinstance(env, str) else env
        self.controller = self.native.controller.bind(env)
        space = self.native.action
        self._dangerous = np.where(np.array(dangerous) > 0, space.high, space.low)
        self.safe, self.unsafe, self.learned = safe, unsafe, learned

    def blend(self, share):
        """Return a mixture of the controller and the dangerous action."""
        return Blend(self.controller, share, self._dangerous)

    def record(self, kind, seed, episodes):
        """Record data; `trials` has three parts."""
        parts = [(self.controller, 0.1)]
        if kind == "trials":
            parts = [(Random(seed), 0.0), (self.controller, 0.3), (self.blend(0.5), 0.3)]
        steps = self.native.max_steps * episodes // len(parts) * (2 if kind == "trials" else 1)
        return velocirl.Dataset.concatenate(
            [
                velocirl.record_dataset(policy, self.env, steps=steps, noise=noise, seed=10 * seed + k, references={})
                for k, (policy, noise) in enumerate(parts)
            ]
        )

    def policies(self, kind, data, seed):
        """Yield the names and policies that are judged by data of this kind."""
        if kind == "operator":
            yield "controller", self.controller
        blends = (*self.safe, *self.unsafe[1:]) if kind == "trials" else self.unsafe[:1]
        for share in blends:
            yield f"{share:.0%} of the controller", self.blend(share)
        common = {"hidden": (64, 64), "learning_rate": 1e-3, "threads": 1, "seed": seed, "data": data}
        learned = [("BC", velocirl.BC, {})] if kind == "operator" else []
        for name, agent, settings in [*learned, *(one[1:] for one in self.learned if one[0] == kind)]:
            yield name, agent(**common, **settings).learn(UPDATES, progress=False)


def plants():
    """Return the plants by name, with the shares of the controller in safe and in unsafe policies."""
    bold = ("operator", "TD3+BC, alpha=30", velocirl.TD3BC, {"alpha": 30.0})
    trials = [("trials", "BC", velocirl.BC, {}), ("trials", "TD3+BC", velocirl.TD3BC, {})]
    tanks = [bold, *trials, ("trials", *bold[1:])]
    return {
        "ChemicalReactor-v0": Plant("ChemicalReactor-v0", (1, 0, 0), (1.0, 0.7), (0.2, 0.3, 0.1)),
        "HVACControl-v0": Plant("HVACControl-v0", (0, 0, 1, 0, 1), (1.0, 0.6), (0.1, 0.2, 0.0)),
        "PowerGrid-v0": Plant("PowerGrid-v0", (0,) * 8, (1.0, 0.8), (0.2, 0.3, 0.1)),
        "WaterTreatment-v0": Plant("WaterTreatment-v0", (0, 0, 0, 1), (1.0, 0.8), (0.5, 0.6, 0.4), [bold, *trials]),
        "TwoTanks-v0": Plant(make_two_tanks(), (0, 1), (1.0, 0.9), (0.5, 0.6, 0.3), tanks),
    }


def agreement(plant, seed, *, kinds=("operator", "trials"), episodes=250, trusted=200, **settings):
    """Yield the kind of data, the policy's name, its true fraction of stops and its risk as judged."""
    for kind in kinds:
        data = plant.record(kind, seed, episodes)
        for name, policy in plant.policies(kind, data, seed):
            lengths = velocirl.evaluate(policy, plant.env, trusted, 1000 + seed).lengths
            truth = float((lengths < plant.native.max_steps).mean())  # nothing but a stop ends an episode early
            yield kind, name, truth, stop_risk(policy, data, seed=seed, threads=1, **settings)


def stops(names, seed):
    """Print the table of emergency stops, and how the verdicts agree with the truth."""
    print("| plant | data | policy | true stops | fitted Q | rollouts that stop | leave the data | effective episodes |"
          " at most | verdict |\n| --- | --- | --- |" + " ---: |" * 6 + " --- |")  # fmt: skip
    right = {True: [], False: []}
    for name, plant in plants().items():
        if names and name not in names:
            continue
        for kind, policy, truth, risk in agreement(plant, seed, fits=FITS, updates=JUDGED):
            unsafe = truth > MAX_STOPS
            right[unsafe].append(risk.fit != unsafe)
            verdict = ("fit" if risk.fit else "not fit") + ("" if risk.fit != unsafe else " (wrong)")
            print(f"| {name} | {kind} | {policy} | {truth:.1%} | {risk.fitted.mean_return:.1%} | {risk.stopped:.0%} |"
                  f" {risk.left:.0%} | {risk.effective:.0f} | {risk.high:.1%} | {verdict} |", flush=True)  # fmt: skip
    print(f"\n{len(right[True]) - sum(right[True])} of {len(right[True])} unsafe policies are called fit,"
          f" {sum(right[False])} of {len(right[False])} safe ones.")  # fmt: skip


def returns(environments):
    """Print the tables of returns."""
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


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("returns", "stops"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "returns":
        returns(given.names)
    else:
        stops(given.names, given.seed)


if __name__ == "__main__":
    main()
