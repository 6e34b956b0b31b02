"""A problem of two states whose answer is known, for each learner from data.

From state 0, action 0 earns 1 and ends, action 1 leads to state 1; there action 0 earns 0 and action 1 earns 3, and
both end. With actions that are numbers, the reward in either state is 1 - (a - best)^2.
"""

import numpy as np
import pytest

import velocirl
from velocirl import BC, CQL, IQL, TD3BC, Box, Dataset, DatasetInfo, Discrete, DiscreteBC, DiscreteCQL, DiscreteIQL

GAMMA = 0.9
CHOICES = DatasetInfo(Discrete(2), Discrete(2))
NUMBERS = DatasetInfo(Discrete(2), Box(-2.0, 2.0, (1,)))
BEST = 0.5, -0.5  # of the actions in [-1, 1]
TABLE = {"hidden": (), "batch_size": 16, "device": "python", "gamma": GAMMA, "seed": 1}


def episode(states, actions, rewards, info):
    count = len(actions)
    return {
        "observations": np.array(states), "actions": np.array(actions).astype(info.action_space.dtype),
        "rewards": np.array(rewards, np.float32), "costs": np.zeros((count, 0), np.float32),
        "terminations": np.arange(count) == count - 1, "truncations": np.zeros(count, bool),
    }  # fmt: skip


def choices(first=(1, 1)):
    """All that can be done, the two actions of state 0 so many times."""
    ended = [episode([0, 0], [0], [1], CHOICES)] * first[0]
    went_on = [episode([0, 1, 1], [1, last], [0, 3 * last], CHOICES) for last in (0, 1)] * first[1]
    return Dataset.from_episodes([*ended * 2, *went_on], CHOICES)


def numbers(count=400):
    """Actions over all of their range, in both states."""
    generator, episodes = np.random.default_rng(0), []
    for _ in range(count):
        acted = generator.uniform(-1, 1, 2)
        rewards = [1 - (acted[k] - BEST[k]) ** 2 for k in range(2)]
        episodes.append(episode([0, 1, 1], 2 * acted[:, None], rewards, NUMBERS))
    return Dataset.from_episodes(episodes, NUMBERS)


def actions_of(agent):
    """What it does in the two states, in units of half the range."""
    return [float(agent.predict(np.array(state), deterministic=True)[0][0]) / 2 for state in range(2)]


def choices_of(agent):
    return [int(agent.predict(np.array(state), deterministic=True)[0]) for state in range(2)]


def columns(agent, name):
    """What a network without hidden layers says of the two states."""
    network = agent.learner.networks.networks[name]
    return network.forward(np.eye(2, dtype=np.float32))[0]


def test_discrete_bc_finds_how_often_the_data_did_what():
    agent = DiscreteBC(data=choices((3, 1)), **TABLE, learning_rate=0.1).learn(150)
    logits = columns(agent, "actor")
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(shares, [[0.75, 0.25], [0.5, 0.5]], atol=0.12)


def test_discrete_iql_finds_expectiles_and_the_best_choices():
    """Of 0 and 3, equally often, the expectile 0.8 is 2.4; of 1 and 0.9 * 2.4 = 2.16 it is 1 + 0.8 * 1.16."""
    settings = {**TABLE, "expectile": 0.8, "learning_rate": 0.05, "tau": 0.2, "batch_size": 64}
    agent = DiscreteIQL(data=choices(), **settings).learn(250)
    np.testing.assert_allclose(columns(agent, "value")[:, 0], [1 + 0.8 * (GAMMA * 2.4 - 1), 2.4], atol=0.2)
    values = columns(agent, "critics")
    for first in (0, 2):  # of the twins
        np.testing.assert_allclose(values[:, first : first + 2], [[1, GAMMA * 2.4], [0, 3]], atol=0.25)
    assert choices_of(agent) == [1, 1]


def test_discrete_cql_is_q_learning_without_conservatism_and_below_it_with_some():
    """The gap pulls the values of actions down on average: what is learnt of the best is a lower bound."""
    settings = {**TABLE, "dueling": False, "huber": 0.0, "learning_rate": 0.05, "tau": 0.2, "batch_size": 64}
    exact, careful = (DiscreteCQL(data=choices(), **settings, conservatism=weight).learn(200) for weight in (0.0, 0.5))
    truth = np.array([[1, GAMMA * 3], [0, 3]])
    np.testing.assert_allclose(columns(exact, "values"), truth, atol=0.15)
    found = columns(careful, "values")
    assert (found.max(1) < truth.max(1) - 0.1).all()
    assert choices_of(exact) == choices_of(careful) == [1, 1]


def test_bc_finds_the_mean_of_the_actions():
    info, acted = NUMBERS, (0.6, -0.2)
    one = [episode([0, 1, 1], 2 * np.array(acted)[:, None] + spread, [0, 0], info) for spread in (-0.2, 0.2)]
    agent = BC(data=Dataset.from_episodes(one, info), **TABLE, learning_rate=0.05).learn(150)
    np.testing.assert_allclose(actions_of(agent), acted, atol=0.03)


SMALL = {
    "hidden": (32, 32),
    "batch_size": 128,
    "gamma": 0.0,
    "seed": 1,
    "threads": 1,
    "learning_rate": 1e-3,
    "tau": 0.05,
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [(TD3BC, {"alpha": 20.0}), (CQL, {"conservatism": 0.1, "samples": 3})])
def test_the_best_action_is_found_among_all_of_them(kind, settings):
    """TD3+BC is drawn to the mean of the data, which is 0, and CQL is not; both find where rewards are highest."""
    agent = kind(data=numbers(), **SMALL, **settings).learn(3000)
    np.testing.assert_allclose(actions_of(agent), BEST, atol=0.12)


@pytest.mark.slow
def test_iql_finds_the_mean_of_actions_by_the_weights_of_their_advantages():
    """Without limits, weights are exp(temperature r) up to a factor: the mean that is most probable is known."""
    data, temperature = numbers(), 4.0
    agent = IQL(data=data, **SMALL, temperature=temperature, largest_weight=1e6).learn(4000)
    acted = data.actions.reshape(-1, 2) / 2
    weights = np.exp(temperature * data.rewards.reshape(-1, 2))
    np.testing.assert_allclose(actions_of(agent), (weights * acted).sum(0) / weights.sum(0), atol=0.06)


@pytest.mark.slow
def test_rebrac_finds_the_best_action_too():
    agent = velocirl.ReBRAC(data=numbers(), **SMALL, actor_penalty=0.02).learn(3000)
    np.testing.assert_allclose(actions_of(agent), BEST, atol=0.12)
