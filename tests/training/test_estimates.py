"""Values and probabilities that an agent tells, beside the same computed by hand from its saved file."""

import gymnasium
import numpy as np
import pytest
from recorded import file_of
from safetensors.numpy import load_file

import velocirl
from velocirl import A2C, BC, DQN, IQL, PPO, QRDQN, SAC, TD3, TD3BC, DiscreteBC, DiscreteIQL, DiscreteSAC
from velocirl.program.rows import commands

SMALL = {"hidden": (6,), "seed": 3, "threads": 1}
ROLLOUTS = {**SMALL, "num_envs": 2, "horizon": 8, "minibatch_size": 8, "epochs": 1}
MEMORY = {**SMALL, "num_envs": 2, "batch_size": 4, "learning_starts": 8, "buffer_size": 64, "n_step": 1}
DATA = {**SMALL, "batch_size": 4}
# Trained and asked on one device; or trained in Python and asked where the network is compiled, which compiles less.
DEVICES = [("python", "python"), ("python", "cpu"), pytest.param(("cpu", "cpu"), marks=pytest.mark.slow)]
on_devices = pytest.mark.parametrize("devices", DEVICES, ids=str)


class Parts(gymnasium.Env):
    """Observations of two parts, and actions of which some are forbidden."""

    observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-4, 8, (2,), np.float32), "room": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        return self.seen(), float(action == 1), self.steps >= 5, False, {}

    def seen(self):
        return {"place": self.np_random.uniform(-4, 8, 2).astype(np.float32), "room": int(self.np_random.integers(3))}

    def action_masks(self):
        return np.array([True, True, self.steps % 2 == 0, False])


def saved(agent, tmp_path):
    """The arrays of a saved agent."""
    return load_file(agent.save(tmp_path / "agent"))


def outputs_of(built, parameters, inputs):
    """A native network by hand, in double precision: tanh or relu layers, groups one after the other."""
    activation = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[built.activation]
    found = np.zeros((len(inputs), built.outputs))
    last = inputs
    for place, (layer, (weights, biases)) in enumerate(zip(built.plan.layers, built.layers(parameters), strict=True)):
        source = inputs if layer["first"] else last
        made = (source @ weights if layer["inputs"] else np.zeros((len(inputs), len(biases)))) + biases
        if layer["hidden"]:
            last = made = activation(made)
        for one in built.plan.segments[built.plan.segments["layer"] == place]:
            found[:, one["column"] : one["column"] + one["size"]] = made[:, one["offset"] :][:, : one["size"]]
    return found


def softmax(logits, legal):
    weights = np.where(legal, np.exp(logits - logits.max(axis=1, keepdims=True)), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


@on_devices
@pytest.mark.parametrize("kind", [PPO, A2C])
def test_value_and_probabilities_of_rollouts(kind, devices, tmp_path):
    agent = kind("CartPole-v1", device=devices[0], normalise_observations=True, layer_norm=False, **ROLLOUTS).learn(64)
    seen = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    arrays = saved(agent, tmp_path)
    moments = velocirl.load(tmp_path / "agent").observation_moments  # the statistics alone
    inputs = np.clip((seen - moments.mean) * moments.inverse_deviation, -10, 10)
    assert not np.allclose(inputs, seen)
    made = outputs_of(agent.built["policy"], arrays["network.parameters"], inputs)
    for one in (agent, velocirl.load(tmp_path / "agent", device=devices[1])):
        np.testing.assert_allclose(one.value(seen), made[:, 2], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.action_probabilities(seen), softmax(made[:, :2], True), rtol=1e-4)
        assert one.value(seen[1]) == pytest.approx(made[1, 2], rel=1e-4, abs=1e-5)
        assert one.action_probabilities(seen[1]).shape == (2,)
    before = agent.state().arrays["acting.rng"].copy()
    agent.value(seen), agent.action_probabilities(seen)
    assert (agent.state().arrays["acting.rng"] == before).all()


@on_devices
def test_q_values_with_masks_and_parts(devices, tmp_path):
    agent = DQN(Parts, device=devices[0], layer_norm=False, dueling=True, scale_observations=True, **MEMORY).learn(32)
    room = np.array([0, 2, 1])
    place = np.array([[-4.0, 8.0], [2.0, 5.0], [0.0, -1.0]], np.float32)
    masks = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], np.int8)  # the last forbids all, and counts for none
    inputs = np.concatenate([(place - 2.0) / 6.0, np.eye(3)[room]], axis=1)
    made = outputs_of(agent.built["values"], saved(agent, tmp_path)["network.parameters"], inputs)
    if devices[1] != devices[0]:
        agent = velocirl.load(tmp_path / "agent", Parts, device=devices[1])
    expected = made[:, 4:] + made[:, :4] - made[:, :4].mean(axis=1, keepdims=True)
    seen = {"place": place, "room": room}
    np.testing.assert_allclose(agent.q_values(seen), expected, rtol=1e-4, atol=1e-5)
    legal = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], bool)
    told = agent.q_values(seen, action_masks=masks)
    np.testing.assert_allclose(told[legal], expected[legal], rtol=1e-4, atol=1e-5)
    assert np.isneginf(told[~legal]).all()
    best = np.where(legal, expected, -np.inf)
    np.testing.assert_allclose(agent.value(seen, action_masks=masks), best.max(axis=1), rtol=1e-4, atol=1e-5)
    probabilities = legal * 0.05 / legal.sum(axis=1, keepdims=True)
    probabilities[range(3), best.argmax(axis=1)] += 0.95
    assert agent.config.exploration_final == 0.05
    np.testing.assert_allclose(agent.action_probabilities(seen, action_masks=masks), probabilities, rtol=1e-5)
    assert (agent.predict(seen, action_masks=masks, deterministic=True)[0] == told.argmax(axis=1)).all()
    one = {"place": place[1], "room": 2}
    np.testing.assert_allclose(
        agent.q_values(one), agent.q_values(seen)[1], rtol=1e-6
    )  # products of one row round apart
    assert agent.q_values(one, 3) == agent.q_values(one)[3]
    with pytest.raises(ValueError, match="action 4 does not exist: there are 4"):
        agent.q_values(one, 4)
    with pytest.raises(ValueError, match=r"action masks of 3 observations have shape \(3, 4\), got \(3, 2\)"):
        agent.value(seen, action_masks=masks[:, :2])


@on_devices
@pytest.mark.parametrize("kind", [SAC, TD3])
def test_continuous_q_values(kind, devices, tmp_path):
    settings = {**MEMORY, "critic_layer_norm": False, "layer_norm": False, "scale_observations": False}
    agent = kind("Pendulum-v1", device=devices[0], **settings).learn(16)
    arrays = saved(agent, tmp_path)
    seen = np.random.default_rng(1).uniform(-1, 1, (4, 3)).astype(np.float32)
    actions = np.array([[-2.0], [0.5], [2.0], [1.0]], np.float32)  # of a torque from -2 to 2
    inputs = np.concatenate([seen, actions / 2.0], axis=1)
    expected = outputs_of(agent.built["critics"], arrays["critics.parameters"], inputs).min(axis=1)
    fresh = kind("Pendulum-v1", device=devices[0], **settings)
    assert not np.allclose(fresh.q_values(seen, actions), expected)
    for one in (agent, velocirl.load(tmp_path / "agent", device=devices[1])):
        np.testing.assert_allclose(one.q_values(seen, actions), expected, rtol=1e-4, atol=1e-5)
        chosen = one.predict(seen, deterministic=True)[0]
        np.testing.assert_allclose(one.value(seen), one.q_values(seen, chosen), rtol=1e-4, atol=1e-5)
    assert agent.q_values(seen[0], actions[0]) == pytest.approx(expected[0], rel=1e-4, abs=1e-5)
    several = agent.q_values(seen[0], actions)
    assert several.shape == (4,)
    assert several[0] == pytest.approx(expected[0], rel=1e-4, abs=1e-5)
    with pytest.raises(ValueError, match=r"continuous actions: give them, as q_values\(observation, actions\)"):
        agent.q_values(seen)
    with pytest.raises(ValueError, match="4 observations need as many actions, got 3"):
        agent.q_values(seen, actions[:3])
    with pytest.raises(ValueError, match="action_probabilities needs choices"):
        agent.action_probabilities(seen)


def test_other_critics(tmp_path):
    seen = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    python = {"device": "python", "layer_norm": False, "scale_observations": False}

    quantiles = QRDQN("CartPole-v1", quantiles=5, **python, **MEMORY).learn(16)
    made = outputs_of(quantiles.built["values"], saved(quantiles, tmp_path)["network.parameters"], seen)
    np.testing.assert_allclose(quantiles.q_values(seen), made.reshape(3, 2, 5).mean(axis=2), rtol=1e-4, atol=1e-6)

    soft = DiscreteSAC("CartPole-v1", **python, **MEMORY).learn(16)
    made = outputs_of(soft.built["critics"], saved(soft, tmp_path)["critics.parameters"], seen)
    np.testing.assert_allclose(soft.q_values(seen), made.reshape(3, 2, 2).min(axis=1), rtol=1e-4, atol=1e-6)
    logits = outputs_of(soft.built["actor"], saved(soft, tmp_path)["network.parameters"], seen)
    np.testing.assert_allclose(soft.action_probabilities(seen), softmax(logits, True), rtol=1e-4)

    del python["scale_observations"]
    for kind, env in ((IQL, "Pendulum-v1"), (DiscreteIQL, "CartPole-v1")):
        offline = kind(env, data=file_of(env), normalise_observations=False, **python, **DATA).learn(8)
        points = seen[:, : offline.encoding.inputs]
        made = outputs_of(offline.built["value"], saved(offline, tmp_path)["value.parameters"], points)
        np.testing.assert_allclose(offline.value(points), made[:, 0], rtol=1e-4, atol=1e-6)
        assert not np.allclose(offline.value(points), offline.q_values(points, offline.predict(points)[0]))


def test_recurrent_networks_see_the_state_that_predict_sees():
    torch = pytest.importorskip("torch")
    agent = PPO("Counter-v0", network="mlp(8) gru(8)", normalise_observations=False, **ROLLOUTS)
    seen = np.array([[1.0], [2.0]], np.float32)
    _, state = agent.predict(seen)
    assert state.any()
    module = agent.network
    with torch.no_grad():
        made = module(torch.from_numpy(seen), torch.from_numpy(state))[0].numpy()
        anew = module(torch.from_numpy(seen), torch.zeros(2, 8))[0].numpy()
    head = agent.head.outputs
    np.testing.assert_allclose(agent.value(seen, state), made[:, head], rtol=1e-5)
    np.testing.assert_allclose(agent.value(seen), anew[:, head], rtol=1e-5)
    started = np.array([True, False])
    mixed = np.array([anew[0, head], made[1, head]])
    np.testing.assert_allclose(agent.value(seen, state, episode_start=started), mixed, rtol=1e-5)
    np.testing.assert_allclose(agent.action_probabilities(seen, state), softmax(made[:, :head], True), rtol=1e-4)


def test_torch_critics_with_what_they_keep(tmp_path):
    pytest.importorskip("torch")
    settings = {**MEMORY, "network": "mlp(6)", "critic": "mlp(6, norm=batch)"}
    agent = SAC("Pendulum-v1", **settings).learn(16)
    agent.save(tmp_path / "agent")
    seen, actions = np.eye(3, dtype=np.float32), np.array([[-2.0], [0.0], [2.0]], np.float32)
    again = velocirl.load(tmp_path / "agent")
    np.testing.assert_array_equal(again.q_values(seen, actions), agent.q_values(seen, actions))
    again.prepare()
    import torch

    critics = again.learner.networks.networks["critics"]
    inputs = torch.tensor(np.concatenate([seen, actions / 2], axis=1))
    expected = critics.forward(inputs)[0].numpy().min(axis=1)
    np.testing.assert_allclose(again.q_values(seen, actions), expected, rtol=1e-5, atol=1e-6)


def test_what_an_algorithm_lacks_is_said(tmp_path):
    rollouts = PPO("Pendulum-v1", device="python", **ROLLOUTS)
    seen = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"PPO learns no Q-values: use value\(observation\)"):
        rollouts.q_values(seen)
    with pytest.raises(ValueError, match="PPO draws continuous actions, which have densities"):
        rollouts.action_probabilities(seen)
    clone = BC("Pendulum-v1", data=file_of("Pendulum-v1"), device="python", **DATA)
    with pytest.raises(ValueError, match="BC learns no values, only a policy"):
        clone.value(seen)
    with pytest.raises(ValueError, match="BC learns no Q-values: it learns a policy alone"):
        clone.q_values(seen)
    choices = DiscreteBC("CartPole-v1", data=file_of("CartPole-v1"), device="python", **DATA)
    assert choices.action_probabilities(np.zeros(4, np.float32)).sum() == pytest.approx(1.0)
    agent = TD3BC("Pendulum-v1", data=file_of("Pendulum-v1"), device="python", **DATA).learn(4)
    small = velocirl.load(agent.save(tmp_path / "small", training=False))
    with pytest.raises(ValueError, match=r"saved without its critics: load a model with all that training needs"):
        small.q_values(seen, [0.0])


def test_several_choices_have_probabilities_each():
    class Valves(Parts):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])
        action_masks = property()

        def seen(self):
            return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    agent = PPO(Valves, device="python", **ROLLOUTS)
    first, second = agent.action_probabilities(np.zeros((4, 2), np.float32))
    assert (first.shape, second.shape) == ((4, 2), (4, 3))
    np.testing.assert_allclose([first.sum(axis=1), second.sum(axis=1)], 1.0, rtol=1e-6)


def test_actions_as_rows_are_what_commands_are_made_of():
    space = gymnasium.spaces.Box(np.float32([0.0, -1.0]), np.float32([350.0, 3.0]))
    np.testing.assert_allclose(commands.action_rows(space, np.array([[350.0, 1.0], [0.0, 9.0]])), [[1, 0], [-1, 1]])
    discrete = gymnasium.spaces.Discrete(3, start=5)
    assert commands.action_rows(discrete, np.array([5, 7])).tolist() == [[0], [2]]
