"""Acting outside of training, against the same network in torch."""

import numpy as np
import pytest
import torch

import velocirl
from velocirl import PPO

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "seed": 1,
         "shared": True, "activation": "tanh"}  # fmt: skip


@pytest.fixture(scope="module")
def agents():
    """One of each kind, as if it had learnt something: its parameters are not small."""
    found = {}
    for name in ("Counter-v0", "IdentityContinuous-v0", "TicTacToe-v1", "Bandit-v0"):
        agent = found[name] = PPO(name, **SMALL)
        agent.parameters[:] += np.random.default_rng(1).normal(0, 0.1, agent.parameters.size)
    return found


def outputs(agent, inputs):
    values = torch.tensor(np.asarray(inputs, np.float64))
    *hidden, last = [layer for layer in agent.network.layers(agent.parameters.astype(np.float64)) if len(layer[0])]
    for weights, biases in hidden:
        values = torch.tanh(values @ torch.tensor(weights) + torch.tensor(biases))
    return (values @ torch.tensor(last[0]) + torch.tensor(last[1])).numpy()


def boards(count=300):
    """Boards of games under way, and which cells are empty."""
    envs = velocirl.make_vec("TicTacToe-v1", count, seed=4)
    envs.reset()
    envs.run_randomly(2)
    seen = envs.copies.observation.copy()
    return seen, (seen == 0).astype(np.int8)


def test_choices_deterministic(agents):
    agent, seen = agents["Counter-v0"], np.linspace(-5, 15, 200, dtype=np.float32)[:, None]
    actions, state = agent.predict(seen, deterministic=True)
    np.testing.assert_array_equal(actions, outputs(agent, seen)[:, :2].argmax(1))
    assert state is None
    assert actions.dtype == agent.source.action_space.dtype
    assert actions.shape == (200,)


def test_choices_drawn(agents):
    """As often as their probabilities say: 20000 draws, within four standard errors."""
    agent = agents["Counter-v0"]
    probability = torch.softmax(torch.tensor(outputs(agent, [[3.0]])[0, :2]), 0)[1].item()
    drawn, _ = agent.predict(np.full((20_000, 1), 3.0, np.float32))
    assert 0.01 < probability < 0.99
    assert abs(drawn.mean() - probability) < 4 * np.sqrt(probability * (1 - probability) / 20_000)
    again, _ = agent.predict(np.full((20_000, 1), 3.0, np.float32))
    assert not np.array_equal(drawn, again)


def test_numbers(agents):
    agent, seen = agents["IdentityContinuous-v0"], np.linspace(-1, 1, 500, dtype=np.float32)[:, None]
    mean = outputs(agent, seen)[:, :1]
    actions, _ = agent.predict(seen, deterministic=True)
    np.testing.assert_allclose(actions, np.clip(mean, -1, 1), atol=1e-5)
    drawn, _ = agent.predict(seen)
    assert np.all(np.abs(drawn) <= 1)
    assert np.abs(drawn - actions).mean() > 0.1
    assert all(agent.source.action_space.contains(action) for action in drawn)


def test_masks(agents):
    agent = agents["TicTacToe-v1"]
    seen, legal = boards()
    logits = outputs(agent, np.eye(3)[seen].reshape(len(seen), 27))[:, :9]
    actions, _ = agent.predict(seen, deterministic=True, action_masks=legal)
    np.testing.assert_array_equal(actions, np.where(legal == 1, logits, -np.inf).argmax(1))
    free, _ = agent.predict(seen, deterministic=True)
    np.testing.assert_array_equal(free, logits.argmax(1))  # masks of before are forgotten
    assert np.any(free != actions)
    drawn, _ = agent.predict(np.repeat(seen, 10, 0), action_masks=np.repeat(legal, 10, 0))
    assert np.repeat(legal, 10, 0)[np.arange(len(drawn)), drawn].all()
    one, _ = agent.predict(seen[0], deterministic=True, action_masks=legal[0])
    assert one == actions[0]


def test_one_observation_or_many(agents):
    agent, seen = agents["Counter-v0"], np.linspace(-5, 15, 200, dtype=np.float32)[:, None]
    many, _ = agent.predict(seen, deterministic=True)
    assert [int(agent.predict(one, deterministic=True)[0]) for one in seen[::20]] == many[::20].tolist()
    assert np.ndim(agent.predict(seen[0])[0]) == 0
    continuous = agents["IdentityContinuous-v0"]
    assert continuous.predict(np.zeros(1, np.float32))[0].shape == (1,)
    assert continuous.predict(np.zeros((7, 1), np.float32))[0].shape == (7, 1)
    assert continuous.predict([0.5])[0].shape == (1,)


def test_whole_number_observations(agents):
    agent = agents["Bandit-v0"]
    best = outputs(agent, [[1.0]])[0, :4].argmax()
    assert agent.predict(0, deterministic=True)[0] == best
    assert agent.predict(np.int64(0), deterministic=True)[0] == best
    assert agent.predict(np.zeros(5, np.int64), deterministic=True)[0].tolist() == [best] * 5


def test_a_given_state_is_given_back(agents):
    assert agents["Counter-v0"].predict(np.zeros(1, np.float32), state="as it was")[1] == "as it was"


def test_changed_parameters_count_at_once(agents):
    agent = PPO("Counter-v0", **SMALL)
    seen = np.linspace(-5, 15, 200, dtype=np.float32)[:, None]
    agent.predict(seen)
    agent.load_policy_arrays(agents["Counter-v0"].policy_arrays())
    expected, _ = agents["Counter-v0"].predict(seen, deterministic=True)
    np.testing.assert_array_equal(agent.predict(seen, deterministic=True)[0], expected)


def test_what_it_gives_is_the_callers(agents):
    agent = agents["IdentityContinuous-v0"]
    first, _ = agent.predict(np.zeros((2, 1), np.float32))
    kept = first.copy()
    agent.predict(np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Counter-v0", np.zeros(2, np.float32)),
        ("Counter-v0", np.zeros((3, 2), np.float32)),
        ("Counter-v0", np.zeros((2, 3, 1), np.float32)),
        ("Counter-v0", 0.0),
        ("TicTacToe-v1", np.zeros(8, np.int64)),
        ("TicTacToe-v1", np.zeros(9)),
        ("Bandit-v0", np.zeros((2, 1), np.int64)),
        ("Bandit-v0", 0.5),
    ],
)
def test_other_observations_are_refused(agents, name, wrong):
    with pytest.raises(ValueError, match=f"an observation of {name}"):
        agents[name].predict(wrong)


@pytest.mark.parametrize("shape", [(8,), (3, 9), (2, 8), (2, 1), (9,), (1, 9)])
def test_other_masks_are_refused(agents, shape):
    """Nothing is broadcast: a mask for one observation says nothing of two."""
    with pytest.raises(ValueError, match=r"action masks of 2 observations have shape \(2, 9\), got"):
        agents["TicTacToe-v1"].predict(np.zeros((2, 9), np.int64), action_masks=np.ones(shape, np.int8))


def test_masks_where_there_are_none_are_refused(agents):
    with pytest.raises(ValueError, match="action masks of 1 observations are not for this policy"):
        agents["Counter-v0"].predict(np.zeros(1, np.float32), action_masks=np.ones(2, np.int8))
