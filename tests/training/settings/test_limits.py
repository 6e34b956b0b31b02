"""Limits of costs: what is refused, and what counts for which."""

from types import SimpleNamespace

import numpy as np
import pytest
from gamble import gamble
from scalars import numbers
from tank import tank

from velocirl import FOCOPS, PPOLagrangian, SACLagrangian
from velocirl.training.settings.limits import (
    CostCriticConfig,
    add_limited_costs,
    cost_critic_numbers,
    follow_expected_cost,
    limit_numbers,
    limited_cost,
)  # fmt: skip

KINDS = [PPOLagrangian, FOCOPS, SACLagrangian]
SMALL = {"device": "python", "num_envs": 2, "hidden": (4,)}
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost_limit": -1.0}, r"cost_limit must be at least 0, got -1.0"),
        ({"cost_limits": {"heat": -2.0}}, r"cost_limits\['heat'\] must be at least 0, got -2.0"),
        ({"cost_limits": {"heat": float("nan")}}, r"cost_limits\['heat'\] must be at least 0, got nan"),
        ({"cost_limits": {}}, r"cost_limits must be of at least one constraint, got {}"),
        ({"cost_limits": {"heat": 1.0}, "cost_limit": 1.0}, r"cost_limit must be left out where cost_limits is given"),
        ({"cost_limits": {"heta": 1.0}}, r"cost_limits: Gamble-v0 has no constraint 'heta': did you mean 'heat'\?"),
    ],
)
def test_limits_that_are_none_are_refused(kind, given, message):
    with pytest.raises(ValueError, match=message):
        kind(gamble, **SMALL, **given)


@each
def test_an_environment_without_constraints_is_refused(kind):
    environment = "Pendulum-v1"
    with pytest.raises(ValueError, match=f"{kind.name.upper()} learns to keep constraints, and {environment} has none"):
        kind(environment, **SMALL)


def test_how_long_an_episode_is_must_be_known():
    source = SimpleNamespace(id="Tank-v0", native=tank(max_steps=None))
    with pytest.raises(ValueError, match="Tank-v0 does not say how long one is: give episode_steps="):
        cost_critic_numbers(CostCriticConfig(), ("level",), source)
    config = SimpleNamespace(**vars(CostCriticConfig(episode_steps=50)), gamma=0.9)
    assert cost_critic_numbers(config, ("level",), source)["steps_of_value"] == pytest.approx(5.0)


def test_settings_from_before_multipliers_followed_episodes_are_refused():
    with pytest.raises(ValueError, match=r"multiplier_rate: .* give integral_gain=, and train anew"):
        SACLagrangian(gamble, **SMALL, multiplier_rate=1e-3)
    with pytest.raises(ValueError, match="overlap must be off, as multipliers follow the episodes that ended"):
        SACLagrangian(gamble, **SMALL, overlap=True)


def test_one_limit_counts_all_constraints_and_several_count_one_each():
    constraints = ("level", "inflow", "weight")
    config = PPOLagrangian.Config(cost_limit=3.0)
    assert config.limited == ("cost",)
    assert limit_numbers(config, constraints, "") == {"limits": (3.0,), "counted": (1.0, 1.0, 1.0)}
    assert limit_numbers(PPOLagrangian.Config(), constraints, "")["limits"] == (25.0,)
    config = PPOLagrangian.Config(cost_limits={"weight": 0.5, "level": 2.0})
    assert config.limited == ("weight", "level")
    told = limit_numbers(config, constraints, "")
    assert told == {"limits": (0.5, 2.0), "counted": (0.0, 0.0, 1.0, 1.0, 0.0, 0.0)}
    settings = numbers(counted=told["counted"])
    assert [limited_cost(np.array([1.0, 2.0, 4.0]), k, settings) for k in range(2)] == [4.0, 1.0]
    costs, limited = np.random.default_rng(0).random((6, 3)), np.full((6, 2), 9.0)
    add_limited_costs(costs, limited, settings)
    np.testing.assert_array_equal(limited[:5], costs[:5][:, [2, 0]])
    assert (limited[5] == 9.0).all()  # the place after the last step


def test_the_multiplier_moves_by_the_cost_that_is_expected():
    """By hand: 0.1 for each limit by which it is exceeded, within one limit, and never below 0 or above 0.35."""
    settings = numbers(limits=(4.0, 10.0), multiplier_rate=0.1, largest_multiplier=0.35)
    learnt, found = numbers(multiplier=(0.0, 0.0)), []
    for costs in ((6.0, 0.0), (99.0, 15.0), (8.0, 15.0), (8.0, 5.0), (8.0, -7.0), (3.0, 10.0)):
        follow_expected_cost(numbers(expected_cost=costs), learnt, settings)
        found.append(learnt.multiplier.tolist())
    expected = [[0.05, 0.0], [0.15, 0.05], [0.25, 0.1], [0.35, 0.05], [0.35, 0.0], [0.325, 0.0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)
