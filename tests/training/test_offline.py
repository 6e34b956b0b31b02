"""Agents that learn from data: what they take, what they refuse, what they keep, in plain Python."""

import dataclasses
import inspect

import numpy as np
import pytest
from recorded import file_of, made_up

import velocirl
from velocirl import BC, IQL, Box, Dataset, DatasetInfo, DiscreteBC, NumericalError
from velocirl.training.agent import Agent

SMALL = {"hidden": (8,), "batch_size": 8, "device": "python", "seed": 1}
PENDULUM = "Pendulum-v1"


@pytest.fixture(scope="module")
def data():
    return made_up(PENDULUM)


def renamed(data, environment, **changes):
    return Dataset(dataclasses.replace(data.info, environment=environment, **changes), data.columns)


def test_an_agent_is_for_the_environment_of_its_data(data):
    agent = BC(data=data, **SMALL)
    assert agent.source.id == PENDULUM
    assert BC(PENDULUM, data=data, **SMALL).source.id == PENDULUM
    assert agent.config.data_sha256 == data.checksum


def test_without_data_there_is_nothing_to_learn_from():
    with pytest.raises(ValueError, match="BC learns from recorded data: give data="):
        BC(PENDULUM)


def test_learning_counts_updates(data):
    agent = BC(data=data, **SMALL).learn(20)
    assert agent.steps == agent.metrics["train/n_updates"] == agent.metrics["time/total_timesteps"] == 20
    assert "20 of 20 updates" in repr(agent)
    assert "gradient updates" in inspect.getdoc(BC.learn)


def test_data_of_another_environment_or_of_other_spaces_is_refused(data):
    with pytest.raises(ValueError, match="was recorded in MountainCarContinuous-v0, and this agent is for Pendulum-v1"):
        BC(PENDULUM, data=renamed(data, "MountainCarContinuous-v0"), **SMALL)
    with pytest.raises(ValueError, match="the observations in given data are Box"):
        BC("MountainCarContinuous-v0", data=renamed(data, None), **SMALL)
    with pytest.raises(ValueError, match=r"DISCRETE-BC chooses one of several actions.* use BC, TD3BC, IQL or CQL"):
        DiscreteBC(data=data, **SMALL)
    with pytest.raises(ValueError, match="use DiscreteBC, DiscreteIQL or DiscreteCQL"):
        IQL(data=made_up("CartPole-v1"), **SMALL)


def test_data_of_no_environment_has_spaces_and_can_be_learnt_from_and_loaded_without_it(data, tmp_path):
    unknown = renamed(data, None)
    agent = BC(data=unknown, **SMALL).learn(8)
    assert agent.source.id == "data:recorded"
    again = Agent.load(agent.save(tmp_path / "agent"))
    seen = data.observations[:5]
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    with pytest.raises(ValueError, match="say where to evaluate"):
        velocirl.evaluate(again, episodes=1)
    with pytest.raises(ValueError, match="learnt from data that was given as an object: give it again as data="):
        again.learn(8)


def test_going_on_needs_the_same_data(data, tmp_path):
    path = data.save(tmp_path / "own.vds")
    agent = BC(data=path, **SMALL).learn(16, lambda agent: agent.steps < 8)
    file = agent.save(tmp_path / "agent")
    whole = BC(data=str(path), **SMALL).learn(16)
    np.testing.assert_array_equal(Agent.load(file).learn().parameters, whole.parameters)
    moved = path.rename(tmp_path / "moved.vds")
    assert Agent.load(file).predict(data.observations[0])[0].shape == (1,)
    with pytest.raises(ValueError, match=r"is not at .*own\.vds: say where, as data="):
        Agent.load(file).learn()
    np.testing.assert_array_equal(Agent.load(file, data=str(moved)).learn().parameters, whole.parameters)
    np.testing.assert_array_equal(Agent.load(file, data=data).learn().parameters, whole.parameters)
    with pytest.raises(ValueError, match="is not the data that bc learnt from so far"):
        Agent.load(file, data=made_up(PENDULUM, seed=1)).learn()


def test_observations_are_normalised_by_those_of_the_data(data):
    agent = BC(data=data, **SMALL)
    steps = np.concatenate([data.episode(k).observations[:-1] for k in range(data.episodes)])
    np.testing.assert_allclose(agent.observation_moments.mean, steps.mean(0), rtol=1e-6)
    np.testing.assert_allclose(agent.observation_moments.inverse_deviation, 1 / steps.std(0), rtol=1e-5)
    agent.learn(1)
    stored = agent.learner.ring.rows["observation"]
    np.testing.assert_allclose(stored.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(stored.std(0), 1, atol=1e-4)
    plain = BC(data=data, **SMALL, normalise_observations=False).learn(1)
    np.testing.assert_array_equal(plain.learner.ring.rows["observation"], steps)


def test_a_setpoint_that_never_moved_in_the_data_does_not_move_actions_by_much():
    """By 0.001 where it was 5.000: a deviation of 0 is none to divide by."""
    generator, info = np.random.default_rng(0), DatasetInfo(Box(-10, 10, (2,)), Box(-1, 1, (1,)))
    seen = np.column_stack([generator.normal(size=201), np.full(201, 5.0)]).astype(np.float32)
    steps = {"observations": seen, "actions": np.tanh(seen[:-1, :1]), "rewards": np.zeros(200)}
    agent = BC(data=Dataset.from_episodes([steps], info), **SMALL).learn(50)
    assert agent.observation_moments.inverse_deviation[1] == 1.0
    assert agent.observation_moments.mean[1] == 5.0
    asked = np.array([[0.3, 5.0], [0.3, 5.001]], np.float32)
    there, beside = agent.predict(asked, deterministic=True)[0][:, 0]
    assert there == pytest.approx(beside, abs=2e-3)


def test_settings_of_a_run_give_the_same_agent_again(data):
    """They name the checksum of the data, by which a saved agent need not open it to act."""
    agent = BC(data=data, **SMALL)
    again = BC(PENDULUM, data=data, data_sha256=data.checksum, **SMALL)
    np.testing.assert_array_equal(again.learn(8).parameters, agent.learn(8).parameters)
    np.testing.assert_array_equal(again.observation_moments.state, agent.observation_moments.state)
    with pytest.raises(ValueError, match="is not the data that bc learnt from so far"):
        BC(PENDULUM, data=data, data_sha256="0" * 64, **SMALL).learn(8)


def test_rows_are_those_of_the_data(data):
    """What follows a step is in its own episode; termination cuts discounts, being cut off does not."""
    agent = IQL(data=data, **SMALL, normalise_observations=False, gamma=0.9).learn(2)
    ring = agent.learner.ring
    rows, places = ring.rows, ring.drawn.places
    following = np.concatenate([data.episode(k).observations[1:] for k in range(data.episodes)])
    np.testing.assert_array_equal(rows["next_observation"], following)
    np.testing.assert_allclose(2 * rows["action"], data.actions, rtol=1e-6)
    np.testing.assert_array_equal(rows["reward"], data.rewards)
    expected = np.where(data.terminations, 0.0, np.float32(0.9))
    np.testing.assert_allclose(ring.drawn.rows["discount"], expected[places])
    assert data.truncations.any()


def test_what_is_no_number_stops_it(data):
    with pytest.raises(NumericalError):
        IQL(data=data, **SMALL, learning_rate=1e30, optimiser="sgd").learn(200)


def test_a_run_is_kept_and_resumed(tmp_path):
    path = file_of(PENDULUM)
    agent = BC(PENDULUM, data=path, **SMALL).learn(16, run_dir=tmp_path / "run", checkpoint_every=8)
    again = Agent.load(tmp_path / "run", best=False)
    assert again.config.data == agent.config.data == path
    assert again.config.data_sha256 == Dataset.load(path).checksum
    np.testing.assert_array_equal(again.parameters, agent.parameters)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [IQL, velocirl.CQL, velocirl.ReBRAC], ids=lambda kind: kind.name)
def test_a_torch_network_learns_from_data_and_goes_on(kind, data, tmp_path, one_torch_thread):
    settings = {"network": "mlp(8) mlp(8)", "batch_size": 8, "device": "cpu", "seed": 1, "threads": 1}
    more = {"samples": 2} if kind is velocirl.CQL else {}
    path = data.save(tmp_path / "data.vds")
    whole = kind(data=path, **settings, **more).learn(64)
    assert not whole.is_native
    half = kind(data=path, **settings, **more)
    half.learn(32)
    half.goal = whole.goal
    np.testing.assert_array_equal(Agent.load(half.save(tmp_path / "half")).learn().parameters, whole.parameters)
