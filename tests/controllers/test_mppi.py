"""Sampling MPC against optima that are known."""

import numpy as np
import pytest
from cart import cart

import velocirl
from velocirl import Box, Environment, float32, record
from velocirl.controllers import MPPI, Constant


@record
class State:
    last: float32[2]


@record
class Params:
    best: float32 = 0.3


def reset(state, params, rng):
    state.last[0] = 0.0
    state.last[1] = 0.0


def step(state, params, action, rng):
    state.last[0] = action[0]
    state.last[1] = action[1]
    return -((action[0] - params.best) ** 2) - 4.0 * (action[1] + 1.5) ** 2 / 9.0, False


def observe(state, params, observation):
    observation[0] = state.last[0]


bowl = Environment(
    "Bowl-v0", state=State, params=Params, observation=Box(-9, 9, (1,)), max_steps=5,
    action=Box(np.float32([-1, -3]), np.float32([1, 3])), reset=reset, step=step, observe=observe,
)  # fmt: skip


def test_the_optimum_of_one_step_of_several_plants():
    envs = velocirl.make_vec(bowl, 3, device="python", params={"best": [-0.4, 0.3, 0.8]})
    observations, _ = envs.reset(seed=0)
    mpc = MPPI(horizon=1, samples=128, iterations=6, device="python").bind(envs)
    actions, plans = mpc.predict(observations)
    np.testing.assert_allclose(actions, [[-0.4, -1.5], [0.3, -1.5], [0.8, -1.5]], atol=0.01)
    assert plans.shape == (3, 1, 2)
    np.testing.assert_array_equal(mpc.predict(observations)[0], actions)  # the same again


def test_a_wrong_model_has_another_optimum():
    envs = velocirl.make_vec(bowl, 1, device="python")
    observations, _ = envs.reset(seed=0)
    mpc = MPPI(horizon=1, samples=128, iterations=6, mismatch={"best": 2.0}, device="python").bind(envs)
    np.testing.assert_allclose(mpc.predict(observations)[0], [[0.6, -1.5]], atol=0.01)


def test_a_plan_goes_on_where_the_last_one_stopped_and_begins_anew_with_an_episode():
    envs = velocirl.make_vec(bowl, 2, device="python")
    observations, _ = envs.reset(seed=0)
    mpc = MPPI(horizon=3, samples=1, device="python").bind(envs)  # one sample: the plan itself
    plans = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 12
    actions, later = mpc.predict(observations, plans, episode_start=np.array([False, True]))
    np.testing.assert_allclose(later, [plans[0][[1, 2, 2]], np.zeros((3, 2))], atol=1e-6)
    np.testing.assert_allclose(actions, later[:, 0])


def test_it_does_not_leave_the_track_to_get_to_the_middle_sooner():
    # Reward wants the cart at 0.5; as many steps as it sees it stays on the track of 1.
    result = velocirl.evaluate(MPPI(horizon=15, samples=64, seed=1), cart, episodes=1, seed=0)
    idle = velocirl.evaluate(Constant([0.0]), cart, episodes=1, seed=0)
    assert idle.mean_return == pytest.approx(-50.0)
    assert result.mean_return > -4.0  # at full force the cart needs 14 steps to the middle and to brake: -1.7 at best
    assert result.lengths.tolist() == [200]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MPPI(samples=0), "samples must be at least 1"),
        (lambda: MPPI(spread=0.0), "spread must be above 0"),
        (lambda: MPPI(smoothness=1.0), "smoothness must be at least 0 and below 1"),
        (lambda: MPPI().bind("CartPole-v1"), "actions that are a flat Box"),
        (lambda: MPPI().bind(cart).predict(np.zeros(2, np.float32)), "needs the state of its plant"),
    ],
)
def test_what_is_wrong_is_said(make, says):
    with pytest.raises(ValueError, match=says):
        make()
