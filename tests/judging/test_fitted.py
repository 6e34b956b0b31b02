"""Fitted Q evaluation against returns that are known: by hand, and by letting policies act."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from velocirl import Dataset, DatasetInfo
from velocirl.judging.acting import actions_at_recorded
from velocirl.judging.fitted import FittedQEvaluation, fitted_q_evaluation
from velocirl.judging.process import Stretches, process_of
from velocirl.judging.value import value_gradient
from velocirl.training.persistence import ALGORITHMS

HORIZON = 8
QUICK = {"threads": 1, "hidden": (32, 32), "fits": 2, "updates": 3000}


def drifting(policy, episodes, seed, horizon=HORIZON):
    """x' = 0.8 x + a, which costs x^2; data of a policy, from beginnings between -1 and 1."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, episodes)
    seen, done, rewards = [x], [], []
    for _ in range(horizon):
        a = np.clip(policy(x, generator), -0.5, 0.5)
        rewards.append(-(x**2))
        x = 0.8 * x + a
        seen.append(x)
        done.append(a)
    return np.stack(seen, 1), np.stack(done, 1), np.stack(rewards, 1)


def data_of(policy, episodes=120, seed=0):
    seen, done, rewards = drifting(policy, episodes, seed)
    info = DatasetInfo(Box(-10, 10, (1,), np.float32), Box(-0.5, 0.5, (1,), np.float32))
    return Dataset.from_episodes(
        [{"observations": s[:, None], "actions": a[:, None], "rewards": r}
         for s, a, r in zip(seen, done, rewards, strict=True)], info
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return data_of(lambda x, generator: generator.uniform(-0.5, 0.5, len(x)))


@pytest.mark.parametrize("gain", [-0.8, 0.2])
def test_an_estimate_is_near_what_the_policy_returns_where_the_data_has_its_actions(data, gain):
    """Within 15% of the difference between the best and the worst of these policies, which is 3.1."""
    found = fitted_q_evaluation(lambda x: gain * x, data, **QUICK)
    truth = drifting(lambda x, _: gain * x, 2000, 1)[2].sum(1).mean()
    assert abs(found.mean_return - truth) < 0.15 * 3.1
    assert found.interval[0] <= found.mean_return <= found.interval[1]
    assert found.behaviour_return == pytest.approx(data.returns().mean(), rel=1e-6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_devices_agree(data, device):
    few = {"fits": 1, "updates": 20, "hidden": (16,), "batch_size": 64}
    found = [fitted_q_evaluation(lambda x: -0.8 * x, data, device=one, **few).mean_return for one in ("python", device)]
    assert found[0] == pytest.approx(found[1], abs=0.1)  # each draws batches of its own


def test_the_gradient_is_that_of_its_loss():
    class Row:
        reward, action = 0.3, (0.75, 2.0)

    class Settings:
        lowest, highest = -2.0, 2.0

    class Metrics:
        loss = value = 0.0

    f = torch.tensor(0.4, requires_grad=True)
    (2.0 * 0.5 * (f - (0.3 + 0.75 * 0.5)) ** 2).backward()
    gradient = np.zeros(1)
    value_gradient([0.4], [0.5], Row, Settings, gradient, Metrics)
    assert gradient[0] == pytest.approx(float(f.grad))
    value_gradient([0.4], [np.inf], Row, Settings, gradient, Metrics)  # held at the highest reward
    assert gradient[0] == pytest.approx(2.0 * (0.4 - 2.0))


def three_steps(terminated):
    info = DatasetInfo(Box(-10, 10, (1,), np.float32), Discrete(2))
    episode = {"observations": [[0.0], [1.0], [2.0], [3.0]], "actions": [0, 1, 0], "rewards": [1.0, 2.0, 6.0]}
    if terminated:
        episode |= {"terminations": [False, False, True], "truncations": [False] * 3}
    return Dataset.from_episodes([episode], info)


@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("terminated", [True, False])
def test_the_equations_of_a_process_are_those_of_its_values(gamma, terminated):
    """Where the values that follow are right, f(x) is what n (mean + deviation f) = r + gamma V' makes it."""
    data = three_steps(terminated)
    process = process_of(Stretches.of(data, None), np.eye(2, dtype=np.float32)[[1, 1, 0, 0]], data.rewards, gamma)
    sample = process.sample(np.array([0, 1, 2] * 20), np.random.default_rng(0))
    mean, deviation = process.mean, process.deviation
    for one in range(60):
        before, after = sample.observations[2 * one], sample.observations[2 * one + 1]
        step, left = one % 3, round(float(before[-1]) * 3)
        assert after[-1] == pytest.approx((left - 1) / 3)
        assert list(before[:3]) == [step, data.actions[step] == 0, data.actions[step] == 1]
        assert list(after[:3]) == [step + 1, *np.eye(2)[[1, 0, 0][step]]]
        ends = left == 1 or (terminated and step == 2)
        assert sample.terminations[one] == ends
        assert (sample.actions[one, 0] == 0.0) == ends
        following = 0.7  # whatever the network says of it
        n, n_after = (sum(gamma**k for k in range(count)) for count in (left, left - 1))
        value = data.rewards[step] + (0.0 if ends else gamma * n_after * (mean + deviation * following))
        f = sample.rewards[one] + sample.actions[one, 0] * following
        assert n * (mean + deviation * f) == pytest.approx(value, abs=1e-4)


def test_long_recordings_are_cut_and_parts_that_were_not_recorded_to_the_end_do_not_count_as_returns():
    data = three_steps(terminated=False)
    stretches = Stretches.of(data, 2)
    assert list(stretches.left) == [2, 1, 2]
    assert list(stretches.whole) == [True, False]
    assert list(stretches.returns(0.5, data.rewards)) == [1.0 + 0.5 * 2.0]
    assert list(stretches.rows(np.array([1, 0, 0]))) == [2, 0, 1, 0, 1]
    assert list(Stretches.of(three_steps(terminated=True), 2).whole) == [True, True]


class Counting:
    """Remembers how many observations it has seen."""

    def predict(self, observation, state=None, episode_start=None, **_):
        count = np.zeros(len(observation)) if state is None else np.where(episode_start, 0, state + 1)
        return 0.01 * count[:, None], count


def test_a_policy_that_remembers_goes_along_each_episode(data):
    short = Dataset.from_episodes([data.episode(0), {**_cut(data.episode(1), 3)}], data.info)
    acted = actions_at_recorded(Counting(), short) * 0.5  # from -1 to 1 in units of half the range
    assert acted[:, 0] == pytest.approx([*np.arange(9) * 0.01, *np.arange(4) * 0.01])


def _cut(episode, steps):
    return {"observations": episode.observations[: steps + 1], "actions": episode.actions[:steps],
            "rewards": episode.rewards[:steps]}  # fmt: skip


def test_it_is_not_among_the_algorithms_that_people_train():
    assert "fitted-q-evaluation" not in ALGORITHMS


def test_an_interval_is_that_of_students_t():
    found = FittedQEvaluation("policy", np.array([1.0, 2.0, 3.0]), np.array([0.0]), 10**6, 10, 1.0)
    assert found.interval == pytest.approx((2.0 - 4.302653, 2.0 + 4.302653), rel=1e-5)
    assert "estimated return 2.00 (-2.30 to 6.30) over 10 steps; the data returned 0.00" in str(found)


def test_what_cannot_be_judged_is_refused(data):
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        fitted_q_evaluation(lambda x: x, data, horizon=0)
    with pytest.raises(ValueError, match="no episode in the data has 9 steps or ends before: give a shorter horizon"):
        fitted_q_evaluation(lambda x: x, data, horizon=9)
    with pytest.raises(ValueError, match="fits must be at least 1, got 0"):
        fitted_q_evaluation(lambda x: x, data, fits=0)
    with pytest.raises(ValueError, match="gamma must be above 0 and at most 1, got 2"):
        fitted_q_evaluation(lambda x: x, data, gamma=2)
