"""What every plant keeps: its controller holds the constraints, chance does not, and its scenarios are reproducible."""

import numpy as np
import pytest

import velocirl
from velocirl.engine import registry

PLANTS = [
    name for name in velocirl.list_envs() if registry.find(name).source.startswith("velocirl.environments.plants.")
]
SEEDS, COPIES = (1, 2, 3), 8

pytestmark = pytest.mark.parametrize("name", PLANTS)


def episode(name, controlled, seed, **options):
    """Rewards (steps, copies) and costs (steps, copies, constraints) until the first end of each copy, then zeros."""
    environment = registry.find(name)
    fleet = velocirl.make_vec(name, COPIES, seed=seed, threads=1, **options)
    fleet.action_space.seed(seed)
    seen, _ = fleet.reset()
    controller, state = environment.controller.bind(environment), None
    begins, goes_on = np.ones(COPIES, bool), np.ones(COPIES, bool)
    rewards, costs = [], []
    for _ in range(environment.max_steps):
        action = fleet.action_space.sample()
        if controlled:
            action, state = controller.predict(seen, state=state, episode_start=begins)
        seen, reward, terminated, truncated, info = fleet.step(action)
        rewards.append(reward * goes_on)
        costs.append(info["costs"] * goes_on[:, None])
        begins = terminated | truncated
        goes_on = goes_on & ~begins
    return np.array(rewards), np.array(costs)


def test_its_controller_holds_all_constraints_in_the_nominal_scenario(name):
    constraints = registry.find(name).constraints
    for seed in SEEDS:
        _, costs = episode(name, True, seed, scenario="nominal")
        violated = costs.any((0, 1))
        assert not violated.any(), [one.name for one, is_so in zip(constraints, violated, strict=True) if is_so]


def test_random_actions_violate_constraints_in_every_copy_and_earn_less(name):
    earned, _ = episode(name, True, 1)
    rewards, costs = episode(name, False, 1)
    assert costs.any((0, 2)).all()
    assert rewards.sum(0).mean() < earned.sum(0).mean()


def test_scenarios_differ_and_can_be_repeated(name):
    assert list(registry.find(name).scenarios) == ["nominal", "disturbed", "degraded"]
    seen = {}
    for scenario in registry.find(name).scenarios:
        rewards, _ = episode(name, True, 4, scenario=scenario)
        np.testing.assert_array_equal(rewards, episode(name, True, 4, scenario=scenario)[0])
        seen[rewards.tobytes()] = scenario
    assert len(seen) == 3


def test_its_signals_and_actuators_have_names_and_units(name):
    environment = registry.find(name)
    assert len(environment.signals) == environment.observation.shape[0]
    assert len(environment.actuators) == environment.action.shape[0]
    assert all([*environment.signals.values(), *environment.actuators.values()])
    assert all(one.unit for one in environment.constraints)
