"""What tabular algorithms learn, against exact planning. Each test states its seeds, budget and threshold."""

import numpy as np
import pytest
from choosing import slow_but
from garnet import ACTIONS, STATES, install, model_of, params_of
from tabular_cases import CASES, GAMMA, OPTIMAL, made, table_of

import velocirl
from velocirl import SARSA, QLearning
from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.policy_evaluation import evaluate_policy
from velocirl.tabular.planning.value_iteration import value_iteration

FALLING = {"learning_rate": 0.5, "learning_rate_schedule": "exponential(end=3e-5)", "exploration_schedule": "constant"}
STEPS = 8_000_000


def error_of(agent, model, exact):
    values = table_of(agent).mean(axis=0)
    assert (values[~model.legal] == 0).all()  # what is illegal was never done
    return np.abs(values - exact)[model.legal].max()


@pytest.mark.parametrize("dtype", slow_but({"float32"}, ["float32", "float64"]))
@pytest.mark.parametrize("seed", slow_but({0}, [0, 1, 3]))
@pytest.mark.parametrize("case", OPTIMAL)
def test_the_best_values_of_random_models(case, seed, dtype):
    """Values are up to 2; 8M steps, within 0.01 of value iteration's."""
    model = model_of(seed)
    agent = install(made(case, dtype=dtype, exploration_rate=OPTIMAL[case], **FALLING), params_of(model)).learn(STEPS)
    assert error_of(agent, model, value_iteration(model, GAMMA).action_values) < 0.01


def soft_values(model, epsilon):
    """The exact action values of the best policy that takes a random action with the probability epsilon."""
    values = np.where(model.legal, 0.0, -np.inf)
    for _ in range(100):
        policy = epsilon * model.legal / model.legal.sum(axis=1, keepdims=True)
        policy[np.arange(STATES), values.argmax(axis=1)] += 1 - epsilon
        previous, values = values, Backup(model, GAMMA)(evaluate_policy(model, policy, GAMMA))
        if np.abs(values[model.legal] - previous[model.legal]).max() < 1e-12:
            return values
    raise AssertionError("policies go on changing")


@pytest.mark.parametrize("seed", slow_but({0}, [0, 1, 3]))
@pytest.mark.parametrize("case", slow_but({"sarsa", "expected-sarsa"}, ["sarsa", "expected-sarsa", "sarsa 3"]))
def test_the_values_of_what_is_done(case, seed):
    """Half of the actions at random: within 0.01 of that policy's exact values, which are not the best ones."""
    model = model_of(seed)
    agent = install(made(case, exploration_rate=0.5, **FALLING), params_of(model)).learn(STEPS)
    exact = soft_values(model, 0.5)
    assert error_of(agent, model, exact) < 0.01
    assert np.abs(exact[model.legal] - value_iteration(model, GAMMA).action_values[model.legal]).max() > 0.2


def biased():
    """As example 6.7 of Sutton and Barto: beyond an action wait others whose mean is below 0, and that vary much."""
    allowed = np.zeros((STATES, ACTIONS), bool)
    allowed[0, :2] = allowed[1] = allowed[2:, 0] = True
    rewards = {"first_reward": np.zeros(18), "second_reward": np.zeros(18)}
    rewards["first_reward"][3:6], rewards["second_reward"][3:6] = -1.1, 0.9
    ends = np.ones(18)
    ends[1] = 0
    return {"chance": np.full(18, 0.5), "first": np.ones(18), "second": np.ones(18), "first_ends": ends,
            "second_ends": ends, "allowed": allowed.ravel(), **rewards}  # fmt: skip


def mean_estimate(case):
    """Of the action that leads there, which is worth -0.1 gamma: the mean over 200 moments of a long run."""
    agent = install(made(case, exploration_rate=1.0, exploration_schedule="constant"), biased())
    estimates = []
    for _ in range(200):
        agent.learn(1000)
        estimates.append(table_of(agent).mean(axis=0)[0, 1])
    return float(np.mean(estimates))


def test_two_estimates_are_less_biased_than_one():
    """A step of 0.1 leaves every value with a deviation of 0.23; the highest of three is 0.19 above the mean."""
    one, two = mean_estimate("q-learning"), mean_estimate("double-q-learning")
    assert one == pytest.approx(0.09 * GAMMA, abs=0.03)
    assert two == pytest.approx(-0.1 * GAMMA, abs=0.03)


def test_the_cliff():
    """Exploring a tenth of the time: SARSA keeps away from the edge and earns more, Q-learning knows the best path."""
    config = {"gamma": 1.0, "learning_rate": 0.1, "exploration_rate": 0.1, "exploration_schedule": "constant"}
    agents = [kind("CliffWalking-v1", seed=0, **config) for kind in (QLearning, SARSA)]
    earned = []
    for agent in agents:
        agent.learn(1_000_000)
        returns = []
        for _ in range(20):
            agent.learn(16_384)
            returns.append(np.mean(agent.recent.returns))
        earned.append(np.mean(returns))
    assert earned[1] > earned[0] + 10
    greedy = [velocirl.evaluate(agent, episodes=3, seed=1, deterministic=True).mean_return for agent in agents]
    assert greedy[0] == -13
    assert -23 <= greedy[1] < -13


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("q")])
@pytest.mark.slow
def test_more_steps_at_once_learn_sooner(case):
    """A reward at the end of a walk of five states, half the exploring at random: each knows the way."""
    walk = np.arange(18) // 3
    params = {"first": np.minimum(walk + 1, 5), "first_reward": walk == 4, "first_ends": walk == 4,
              "allowed": np.tile([1, 0, 0], 6)}  # fmt: skip
    agent = install(made(case, exploration_rate=0.5), params).learn(50_000)
    np.testing.assert_allclose(table_of(agent)[0, :5, 0], GAMMA ** np.arange(4, -1, -1.0), rtol=1e-4)
