"""Acting outside of training with torch modules, against the module itself."""

import gymnasium
import numpy as np
import pytest
import torch
from parts import Parts
from torch import nn

import velocirl
from velocirl import PPO

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "threads": 1, "seed": 1, "device": "cpu",
         "learning_rate": 0.02, "activation": "tanh"}  # fmt: skip
BATCH = 96


class Plain(nn.Module):
    """A user's own policy, of two linear parts."""

    def __init__(self, inputs, outputs):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.policy, self.value = nn.Linear(inputs, outputs), nn.Linear(inputs, 1)
        for one in self.parameters():
            one.data.uniform_(-1, 1, generator=generator)

    def forward(self, observation):
        observation = observation.flatten(1)
        return self.policy(observation), self.value(observation)


@pytest.fixture(scope="module", autouse=True)
def _register():
    gymnasium.register("ActorParts-v7", Parts)
    yield
    gymnasium.registry.pop("ActorParts-v7")


@pytest.fixture(scope="module")
def agents():
    """One of each kind, as if it had learnt something: its parameters are not small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    kinds = {
        "recurrent": ("Counter-v0", "mlp(8) lstm(8)"),
        "continuous": ("IdentityContinuous-v0", "gru(8)"),
        "masked": ("TicTacToe-v1", "mlp(8) gru(8)"),
        "own": ("Counter-v0", Plain(1, 2)),
        "pixels": ("CatchPixels-v0", "cnn(4) mlp(8)"),
        "parts": ("gym:ActorParts-v7", {"symbol": "mlp(8)", "then": "mlp(8)"}),
        "layers": ("Counter-v0", "mlp(16, 16)"),
    }
    made = {name: PPO(env, network=network, **SMALL) for name, (env, network) in kinds.items()}
    generator = np.random.default_rng(3)
    for agent in made.values():
        arrays = agent.policy_arrays()
        for name in arrays.keys() - {"observation.moments"}:
            arrays[name] = arrays[name] + generator.normal(0, 0.1, arrays[name].shape).astype(np.float32)
        agent.load_policy_arrays(arrays)
    yield made
    torch.set_num_threads(before)


def outputs(agent, observation, state=None):
    """What the module makes of an encoded observation."""
    with torch.no_grad():
        seen = torch.as_tensor(observation, dtype=torch.float32)
        return agent.network(seen) if state is None else agent.network(seen, torch.as_tensor(state))


def test_a_state_goes_in_and_out(agents):
    """Step by step through the module; without a state, an episode begins."""
    agent, expected, state = agents["recurrent"], torch.zeros(5, 16), None
    seen = np.random.default_rng(0).uniform(0, 10, (6, 5, 1)).astype(np.float32)
    for one in seen:
        made, expected = outputs(agent, one, expected)
        actions, state = agent.predict(one, state=state, deterministic=True)
        assert state.shape == (5, 16)
        np.testing.assert_allclose(state, expected, atol=1e-6)
        np.testing.assert_array_equal(actions, made[:, :2].argmax(1))
    fresh, _ = agent.predict(seen[-1], deterministic=True)
    assert state.any(axis=1).all()
    np.testing.assert_array_equal(fresh, outputs(agent, seen[-1], torch.zeros(5, 16))[0][:, :2].argmax(1))


def test_episode_start_forgets(agents):
    agent = agents["recurrent"]
    seen = np.full((4, 1), 3.0, np.float32)
    before = np.random.default_rng(1).uniform(-1, 1, (4, 16)).astype(np.float32)
    kept = before.copy()
    _, after = agent.predict(seen, state=before, episode_start=np.array([True, False, True, False]))
    expected = before.copy()
    expected[[0, 2]] = 0
    np.testing.assert_allclose(after, outputs(agent, seen, expected)[1], atol=1e-6)
    np.testing.assert_array_equal(before, kept)  # the caller's own is not written to
    _, all_new = agent.predict(seen, state=before, episode_start=True)
    np.testing.assert_allclose(all_new, outputs(agent, seen, np.zeros_like(before))[1], atol=1e-6)
    _, none_new = agent.predict(seen, state=before, episode_start=False)
    np.testing.assert_allclose(none_new, outputs(agent, seen, before)[1], atol=1e-6)


def test_one_observation_has_a_state_of_one_row(agents):
    agent = agents["continuous"]
    action, state = agent.predict(np.array([0.3], np.float32), deterministic=True)
    assert action.shape == (1,)
    assert state.shape == (1, 8)
    action, again = agent.predict(np.array([0.3], np.float32), state=state, deterministic=True)
    assert not np.array_equal(state, again)
    mean = outputs(agent, [[0.3]], state)[0][0, :1].numpy()
    np.testing.assert_allclose(action, np.clip(mean, -1, 1), atol=1e-6)


@pytest.mark.parametrize("wrong", [np.zeros((3, 16), np.float32), np.zeros((2, 15), np.float32), np.zeros(16)])
def test_other_states_are_refused(agents, wrong):
    with pytest.raises(ValueError, match=r"the state of 2 observations has shape \(2, 16\), got"):
        agents["recurrent"].predict(np.zeros((2, 1), np.float32), state=wrong)


def test_without_memory_a_state_is_given_back(agents):
    for name in ("own", "layers"):
        assert agents[name].predict(np.zeros(1, np.float32), state="as it was")[1] == "as it was"


def test_masks_of_a_recurrent_policy(agents):
    agent = agents["masked"]
    envs = velocirl.make_vec("TicTacToe-v1", 200, seed=4)
    envs.reset()
    envs.run_randomly(2)
    seen = envs.copies.observation.copy()
    legal = (seen == 0).astype(np.int8)
    before = np.random.default_rng(2).uniform(-1, 1, (200, 8)).astype(np.float32)
    logits = outputs(agent, np.eye(3)[seen].reshape(200, 27), before)[0][:, :9].numpy()
    actions, _ = agent.predict(seen, state=before, deterministic=True, action_masks=legal)
    np.testing.assert_array_equal(actions, np.where(legal == 1, logits, -np.inf).argmax(1))
    free, _ = agent.predict(seen, state=before, deterministic=True)
    np.testing.assert_array_equal(free, logits.argmax(1))  # masks of before are forgotten
    assert np.any(free != actions)
    for _ in range(5):
        drawn, _ = agent.predict(seen, state=before, action_masks=legal)
        assert legal[np.arange(200), drawn].all()
    for shape in ((8,), (3, 9), (2, 1), (9,)):
        with pytest.raises(ValueError, match=r"action masks of 2 observations have shape \(2, 9\), got"):
            agent.predict(np.zeros((2, 9), np.int64), action_masks=np.ones(shape, np.int8))
    with pytest.raises(ValueError, match="action masks of 1 observations are not for this policy"):
        agents["own"].predict(np.zeros(1, np.float32), action_masks=np.ones(2, np.int8))


def test_actions_are_drawn_as_often_as_they_should(agents):
    """20000 draws, within four standard errors; and not the same ones twice."""
    agent = agents["own"]
    seen = np.full((20_000, 1), 0.4, np.float32)
    probability = torch.softmax(outputs(agent, seen[:1])[0][0], 0)[1].item()
    drawn, _ = agent.predict(seen)
    assert 0.01 < probability < 0.99
    assert abs(drawn.mean() - probability) < 4 * np.sqrt(probability * (1 - probability) / 20_000)
    again, _ = agent.predict(seen)
    assert not np.array_equal(drawn, again)
    assert drawn.dtype == agent.source.action_space.dtype


def test_pictures(agents):
    agent = agents["pixels"]
    envs = velocirl.make_vec("CatchPixels-v0", 50, seed=4)
    seen, _ = envs.reset()
    made = outputs(agent, seen / 255)
    np.testing.assert_array_equal(agent.predict(seen, deterministic=True)[0], made[:, :3].argmax(1))
    one, _ = agent.predict(seen[0], deterministic=True)
    assert one == made[0, :3].argmax()


def test_observations_of_parts(agents):
    agent = agents["parts"]
    generator = np.random.default_rng(0)
    seen = {"noise": generator.uniform(-1, 1, (9, 2)).astype(np.float32), "symbol": np.arange(9) % 3}
    with torch.no_grad():
        made = agent.network({"noise": torch.tensor(seen["noise"]), "symbol": torch.eye(3)[seen["symbol"]]})
    actions, _ = agent.predict(seen, deterministic=True)
    np.testing.assert_array_equal(actions, made[:, :3].argmax(1))
    one, _ = agent.predict({"noise": seen["noise"][4], "symbol": 1}, deterministic=True)
    assert one == actions[4]


def test_more_training_counts_at_once(agents):
    agent = PPO("Counter-v0", network="mlp(8) gru(8)", normalise_observations=True, **SMALL)
    seen = np.linspace(0, 10, 50, dtype=np.float32)[:, None]
    for _ in range(2):
        agent.predict(seen)
        agent.learn(BATCH)
        moments = agent.arrays()["observation.moments"]
        scaled = (seen - moments[1]) / np.sqrt(moments[2] / moments[0] + 1e-8)
        _, state = agent.predict(seen)
        np.testing.assert_allclose(state, outputs(agent, scaled, np.zeros((50, 8), np.float32))[1], atol=1e-4)


def test_what_it_gives_is_the_callers(agents):
    agent = agents["continuous"]
    action, state = agent.predict(np.zeros((2, 1), np.float32), deterministic=True)
    kept = action.copy(), state.copy()
    agent.predict(np.ones((2, 1), np.float32), state=state)
    np.testing.assert_array_equal(action, kept[0])
    np.testing.assert_array_equal(state, kept[1])


def test_layers_act_as_the_native_network_does(agents):
    native = PPO("Counter-v0", hidden=(16, 16), shared=True, **SMALL)
    native.load_policy_arrays(agents["layers"].policy_arrays())
    seen = np.linspace(-5, 15, 300, dtype=np.float32)[:, None]
    expected, _ = agents["layers"].predict(seen, deterministic=True)
    np.testing.assert_array_equal(native.predict(seen, deterministic=True)[0], expected)
    assert 0 < expected.mean() < 1
