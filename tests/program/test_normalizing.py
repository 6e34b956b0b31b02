"""Running means and variances against NumPy, and what may change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

import velocirl
from velocirl import PPO
from velocirl.program.normalizing import RESOLUTION, RunningMoments, take_in, take_in_rewards

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
    alike = moments.inverse_deviation == 1.0
    assert (together.std(0)[alike] <= RESOLUTION * np.abs(together.mean(0))[alike] + 1e-7).all()
    found = moments.inverse_deviation[~alike] ** -2.0
    np.testing.assert_allclose(found, together.var(0)[~alike] + 1e-8, rtol=1e-9, atol=1e-9)
    assert not alike[np.ptp(together, axis=0) > 1e-3].any()
    assert moments.state[0].tolist() == [len(together)] * 3


def test_a_far_mean_does_not_drown_a_small_deviation():
    generator, moments = np.random.default_rng(0), RunningMoments(1)
    batches = [1e4 + generator.standard_normal((500, 1)) for _ in range(20)]
    for batch in batches:
        add(moments, batch)
    np.testing.assert_allclose(1 / moments.inverse_deviation, np.concatenate(batches).std(), rtol=1e-4)


@pytest.mark.parametrize("number", [0.0, 3.0, -5.001, 1e-6, 1e6, 1e20])
def test_a_constant_is_only_centred(number):
    """Also where single precision rounded it up and down; a thousandth of it is a change."""
    rounded = np.where(np.arange(4096) % 3 == 0, np.float32(number), np.nextafter(np.float32(number), np.float32(9e20)))
    for column in (np.full(4096, number), rounded if number else np.zeros(4096)):
        moments = RunningMoments(1)
        for _ in range(20):
            add(moments, column.astype(np.float64)[:, None])
        assert moments.inverse_deviation == 1.0
    if abs(number) >= 3.0:
        moments = RunningMoments(1)
        add(moments, number * np.array([[1.0], [1.001]]))
        np.testing.assert_allclose(moments.inverse_deviation, 1 / abs(number * 0.0005), rtol=1e-2)


def test_devices_divide_by_the_same():
    """The scalar functions of every device, against the arrays of the host: a constant, zeros, and what changes."""
    generator, columns = np.random.default_rng(0), RunningMoments(3)
    batch = np.column_stack([np.full(50, 5.0), np.zeros(50), generator.normal(7, 2, 50)])
    add(columns, batch)
    state, centre, inverse = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    for j in range(3):
        take_in(j, 0, 0, state, np.array([batch.sum(0), (batch**2).sum(0)]), 50, centre, inverse)
    np.testing.assert_array_equal(state, columns.state)
    np.testing.assert_array_equal(centre, columns.mean)
    np.testing.assert_array_equal(inverse, columns.inverse_deviation)
    assert inverse[:2].tolist() == [1.0, 1.0]
    scale = np.zeros(3, [("reward_scale", np.float32)]).view(np.recarray)
    moments, sums = np.zeros((3, 3)), np.stack([batch.sum(0), (batch**2).sum(0)], axis=1)
    for s in range(3):
        take_in_rewards(s, 0, 0, moments, sums, 50, scale)
    np.testing.assert_allclose(scale["reward_scale"], inverse, rtol=1e-6)


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
        shown = agent.learner.collector.recorded.records["observation"][:, :-1].reshape(-1)
        seen.append(shown / scale + centre)
        agent.learner.settle()
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
    records = agent.learner.collector.recorded.records
    steps, last_value = records[:, :-1], records["value"][:, -1]
    rewards = -((np.clip(steps["action"][..., 0], -1, 1) - steps["observation"][..., 0]) ** 2)
    np.testing.assert_allclose(steps["reward"], np.clip(rewards * scale, -10, 10), rtol=1e-4, atol=1e-6)
    final = steps[:, -1]
    following = np.where(final["ended"] != 0, final["final_value"], last_value)
    expected = final["reward"] + 0.99 * following - final["value"]
    np.testing.assert_allclose(final["advantage"], expected, rtol=1e-4, atol=1e-5)
