"""Running means and variances against NumPy, and what may change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

import velocirl
from velocirl import PPO
from velocirl.learners.normalising import RunningMoments

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "shares": 2,
         "seed": 1, "shared": True, "activation": "tanh"}  # fmt: skip
BATCH = 96


def add(moments, batch):
    moments.add(batch.sum(0), (batch**2).sum(0), len(batch))


@given(
    batches=some.lists(
        some.integers(0, 20).flatmap(lambda rows: arrays(np.float64, (rows, 3), elements=some.floats(-100, 100))),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_moments_of_batches_are_those_of_all(batches):
    moments, together = RunningMoments(3), np.concatenate(batches)
    for batch in batches:
        add(moments, batch)
    if len(together) == 0:
        assert moments.mean.tolist() == [0, 0, 0]
        np.testing.assert_allclose(moments.inverse_deviation, 1)
        return
    np.testing.assert_allclose(moments.mean, together.mean(0), atol=1e-9)
    np.testing.assert_allclose(moments.inverse_deviation**-2.0, together.var(0) + 1e-8, rtol=1e-9, atol=1e-9)
    assert moments.state[0].tolist() == [len(together)] * 3


def test_a_far_mean_does_not_drown_a_small_deviation():
    generator, moments = np.random.default_rng(0), RunningMoments(1)
    batches = [1e4 + generator.standard_normal((500, 1)) for _ in range(20)]
    for batch in batches:
        add(moments, batch)
    np.testing.assert_allclose(1 / moments.inverse_deviation, np.concatenate(batches).std(), rtol=1e-4)


def test_a_constant_is_not_blown_up_without_bound():
    moments = RunningMoments(1)
    add(moments, np.full((10, 1), 3.0))
    assert moments.inverse_deviation == pytest.approx(1e4)


@pytest.fixture(scope="module")
def agent():
    return PPO("IdentityContinuous-v0", **SMALL, normalise_observations=True, normalise_rewards=True).learn(3 * BATCH)


def moments_of(agent):
    arrays = agent.arrays()
    return arrays["observation.moments"].copy(), arrays["reward.moments"].copy()


def test_every_observation_of_training_counts(agent):
    again = PPO("IdentityContinuous-v0", **SMALL, normalise_observations=True, normalise_rewards=True)
    seen, before = [], None

    def watch(agent):
        nonlocal before
        centre, scale = (0.0, 1.0) if before is None else before
        shown = agent.learner.collector.records["observation"][:, :-1].reshape(-1)
        seen.append(shown / scale + centre)
        before = float(agent.observation_moments.mean[0]), float(agent.observation_moments.inverse_deviation[0])

    again.learn(3 * BATCH, watch)
    numbers = np.concatenate(seen)
    count, mean, deviations = again.arrays()["observation.moments"][:, 0]
    assert count == len(numbers) == 3 * BATCH
    assert mean == pytest.approx(numbers.mean(), abs=1e-4)
    assert deviations / count == pytest.approx(numbers.var(), rel=1e-3)
    assert again.arrays()["reward.moments"][0, 0] == 3 * BATCH


def test_looking_changes_nothing(agent):
    before = moments_of(agent)
    velocirl.evaluate(agent, episodes=20, seed=3)
    agent.predict(np.full((50, 1), 100.0, np.float32))
    for found, expected in zip(moments_of(agent), before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_saved_with_the_model(agent, tmp_path):
    loaded = PPO.load(agent.save(tmp_path / "model"))
    for found, expected in zip(moments_of(loaded), moments_of(agent), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found[0, 0] == 3 * BATCH
    seen = np.linspace(-1, 1, 21, dtype=np.float32)[:, None]
    expected, _ = agent.predict(seen, deterministic=True)
    np.testing.assert_array_equal(loaded.predict(seen, deterministic=True)[0], expected)
    assert velocirl.evaluate(loaded, episodes=8, seed=1).returns.tolist() == (
        velocirl.evaluate(agent, episodes=8, seed=1).returns.tolist()
    )


def test_the_policy_sees_normalised_observations(agent):
    moments = agent.arrays()["observation.moments"][:, 0]
    seen = np.linspace(-1, 1, 21)[:, None]
    values = (seen - moments[1]) / np.sqrt(moments[2] / moments[0] + 1e-8)
    *hidden, last, _ = agent.network.layers(agent.parameters.astype(np.float64))
    for weights, biases in hidden:
        values = np.tanh(values @ weights + biases)
    expected = np.clip((values @ last[0] + last[1])[:, :1], -1, 1)
    np.testing.assert_allclose(agent.predict(seen.astype(np.float32), deterministic=True)[0], expected, atol=1e-5)


def test_rewards_are_only_scaled():
    """Scaled by the deviation of discounted returns and not shifted: a reward of zero stays zero."""
    agent = PPO("IdentityContinuous-v0", **SMALL, normalise_observations=True, normalise_rewards=True)
    agent.learn(BATCH)
    moments = agent.arrays()["reward.moments"][:, 0]
    scale = 1 / np.sqrt(moments[2] / moments[0] + 1e-8)
    records = agent.learner.collector.records
    steps, last_value = records[:, :-1], records["value"][:, -1]
    rewards = -((np.clip(steps["action"][..., 0], -1, 1) - steps["observation"][..., 0]) ** 2)
    np.testing.assert_allclose(steps["reward"], np.clip(rewards * scale, -10, 10), rtol=1e-4, atol=1e-6)
    final = steps[:, -1]
    following = np.where(final["ended"] != 0, final["final_value"], last_value)
    expected = final["reward"] + 0.99 * following - final["value"]
    np.testing.assert_allclose(final["advantage"], expected, rtol=1e-4, atol=1e-5)
