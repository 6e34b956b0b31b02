"""Agents that go on by steps from what another has learnt from data, in plain Python."""

import numpy as np
import pytest
from recorded import file_of, made_up

from velocirl import BC, CQL, DQN, IQL, SAC, TD3, TD3BC, DiscreteCQL, OnlineCQL, OnlineIQL, ReBRAC
from velocirl.training.agent import Agent

LAYERS = {"hidden": (8, 8), "device": "python", "seed": 1}
DATA = {"batch_size": 8, **LAYERS}
STEPS = {"num_envs": 2, "train_every": 2, "batch_size": 8, "buffer_size": 500, **LAYERS}


def offline(kind, environment, **changes):
    return kind(environment, data=file_of(environment), **{**DATA, **changes}).learn(8)


@pytest.mark.parametrize(("offline_kind", "kind", "environment", "changes"), [
    (TD3BC, TD3, "Pendulum-v1", {}),
    (ReBRAC, TD3, "Pendulum-v1", {"critic_layer_norm": True}),
    (CQL, SAC, "Pendulum-v1", {}),
    (CQL, OnlineCQL, "Pendulum-v1", {"samples": 2}),
    (IQL, OnlineIQL, "Pendulum-v1", {}),
    (DiscreteCQL, DQN, "CartPole-v1", {}),
])  # fmt: skip
def test_it_acts_as_the_other_did_and_learns_on(offline_kind, kind, environment, changes, tmp_path):
    """Though the other normalised observations, and this one does not."""
    before = offline(offline_kind, environment)
    agent = kind(environment, prefill=file_of(environment), **STEPS, **changes).continue_from(before)
    seen = made_up(environment, seed=3).observations[:50]
    expected = before.predict(seen, deterministic=True)[0]
    np.testing.assert_allclose(agent.predict(seen, deterministic=True)[0], expected, atol=1e-4)
    again = kind(environment, **STEPS, **changes).continue_from(before.save(tmp_path / "before"))
    np.testing.assert_array_equal(again.parameters, agent.parameters)
    saved = Agent.load(agent.save(tmp_path / "agent"))
    np.testing.assert_array_equal(saved.learn(8).parameters, agent.learn(8).parameters)
    assert not np.array_equal(agent.parameters, again.parameters)


@pytest.mark.parametrize(("offline_kind", "kind", "environment"), [
    pytest.param(TD3BC, TD3, "Pendulum-v1", marks=pytest.mark.slow),
    (ReBRAC, TD3, "Pendulum-v1"),
    (CQL, SAC, "Pendulum-v1"),
    (IQL, OnlineIQL, "Pendulum-v1"),
    (DiscreteCQL, DQN, "CartPole-v1"),
])  # fmt: skip
def test_the_defaults_of_both_algorithms_fit(offline_kind, kind, environment):
    """Shapes come from the agent that learned from data, though defaults and presets of the other differ."""
    before = offline_kind(environment, data=file_of(environment), device="python", seed=1, batch_size=2).learn(1)
    agent = kind(environment, device="python", seed=1, num_envs=1).continue_from(before)
    assert all(agent.built[name] == before.built[name] for name in agent.built)
    seen = made_up(environment, seed=3).observations[:20]
    expected = before.predict(seen, deterministic=True)[0]
    np.testing.assert_allclose(agent.predict(seen, deterministic=True)[0], expected, atol=1e-3)


def test_shapes_come_from_the_other_unless_they_were_given(tmp_path):
    before = offline(TD3BC, "Pendulum-v1", hidden=(12, 8), activation="tanh", critic="mlp(6)")
    agent = TD3("Pendulum-v1", device="python", seed=2, num_envs=2, batch_size=8)
    agent.predict(np.zeros(3, np.float32))  # by the networks from before
    agent.continue_from(before)
    assert (agent.config.hidden, agent.config.activation, agent.config.critic) == ((12, 8), "tanh", "mlp(6)")
    assert agent.num_parameters == sum(one.num_parameters for one in before.built.values())
    expected = before.predict(np.ones(3, np.float32), deterministic=True)[0]
    np.testing.assert_allclose(agent.predict(np.ones(3, np.float32), deterministic=True)[0], expected, atol=1e-4)
    saved = Agent.load(agent.save(tmp_path / "agent"))
    np.testing.assert_array_equal(saved.parameters, agent.parameters)
    before = offline(TD3BC, "Pendulum-v1", network="mlp(8, 8)")
    agent = TD3("Pendulum-v1", device="python", network="mlp(8, 8)").continue_from(before)
    assert agent.config.network == "mlp(8, 8)"


def test_a_given_setting_that_contradicts_is_named_with_both_values():
    before = offline(TD3BC, "Pendulum-v1")
    for changes, said in (
        ({"hidden": (16,)}, r"hidden=\(16,\) of TD3 contradicts hidden=\(8, 8\) of TD3-BC: leave hidden out"),
        ({"activation": "tanh"}, "activation='tanh' of TD3 contradicts activation='relu' of TD3-BC"),
        ({"critic_layer_norm": False}, "critic_layer_norm=False of TD3 contradicts critic_layer_norm=True of TD3-BC"),
        ({"network": "mlp(4)"}, r"network='mlp\(4\)' of TD3 contradicts hidden=\(8, 8\) of TD3-BC: leave network out"),
        ({"critic": "mlp(4)"}, r"critic='mlp\(4\)' of TD3 contradicts critic=None of TD3-BC"),
    ):
        with pytest.raises(ValueError, match=said):
            TD3("Pendulum-v1", device="python", **changes).continue_from(before)


def test_critics_targets_and_the_temperature_are_taken_over():
    """For observations as they are, critics give what they gave for normalised ones."""
    before = offline(CQL, "Pendulum-v1", samples=2)
    agent = SAC("Pendulum-v1", **STEPS).continue_from(before)
    seen = made_up("Pendulum-v1", seed=3).observations[:20]
    normalised = np.zeros((20, 3), np.float32)
    before.recorded.encode(seen, normalised)
    actions = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    for name in ("critics", "target_critics"):
        theirs, ours = (one.learner.networks.networks[name] for one in (before, agent))
        expected = theirs.forward(np.hstack([normalised, actions]))[0]
        np.testing.assert_allclose(ours.forward(np.hstack([seen, actions]))[0], expected, atol=1e-5)
    theirs, ours = (one.learner.networks.numbers for one in (before, agent))
    np.testing.assert_array_equal(ours, theirs)
    assert ours[0, 0] != 0


def test_critics_of_a_scaled_agent_give_what_they_gave_for_normalised_observations():
    before = offline(CQL, "Pendulum-v1", samples=2)
    agent = SAC("Pendulum-v1", scale_observations=True, **STEPS).continue_from(before)
    seen = made_up("Pendulum-v1", seed=3).observations[:20]
    normalised, actions = np.zeros((20, 3), np.float32), np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    before.recorded.encode(seen, normalised)
    scaled = seen / np.float32([1, 1, 8])
    theirs, ours = (one.learner.networks.networks["critics"] for one in (before, agent))
    expected = theirs.forward(np.hstack([normalised, actions]))[0]
    np.testing.assert_allclose(ours.forward(np.hstack([scaled, actions]))[0], expected, atol=1e-5)


def test_what_cannot_be_taken_over_is_refused():
    with pytest.raises(ValueError, match="TD3 begins with critics, which BC has not learnt"):
        TD3("Pendulum-v1", **STEPS).continue_from(offline(BC, "Pendulum-v1"))
    with pytest.raises(ValueError, match=r"actor of IQL and SAC have different outputs: continue .* IQL by OnlineIQL"):
        SAC("Pendulum-v1", **STEPS).continue_from(offline(IQL, "Pendulum-v1"))
    before = offline(TD3BC, "Pendulum-v1")
    agent = TD3("Pendulum-v1", device="python")
    agent.prepare()
    with pytest.raises(ValueError, match=r"TD3 is prepared for training already: change its networks before prepare"):
        agent.continue_from(before)
    with pytest.raises(ValueError, match="whose spaces are not those of MountainCarContinuous-v0"):
        TD3("MountainCarContinuous-v0", **STEPS).continue_from(before)
    with pytest.raises(ValueError, match="has learnt already"):
        TD3("Pendulum-v1", **STEPS, learning_starts=2).learn(8).continue_from(before)
