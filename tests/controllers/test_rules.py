"""Constant, random and base-stock control, and controllers in `evaluate`."""

import numpy as np
import pytest

import velocirl
from velocirl import Box
from velocirl.controllers import PID, BaseStock, Constant, Loop, Order, Random
from velocirl.controllers.layout import Layout

SHOP = Layout(
    "Shop-v0", Box(0.0, 1000.0, (4,)), Box(0.0, 50.0, (2,)), ("stock", "coming", "owed", "forecast"), ("order", "price")
)


def in_shop(controller):
    controller._layout = SHOP
    controller.settle(SHOP, None)
    return controller


def test_base_stock_orders_what_is_missing():
    rule = in_shop(BaseStock(Order("order", 100.0, plus=("stock", "coming"), minus=("owed",)), bias={"price": 3.0}))
    seen = np.array([[60, 20, 5, 0], [90, 20, 0, 0], [0, 0, 30, 0]], np.float32)
    actions, state = rule.predict(seen)
    np.testing.assert_array_equal(actions, [[25, 3], [0, 3], [50, 3]])  # the last one is cut off at the bound
    assert state is None
    np.testing.assert_array_equal(rule.predict(seen[0])[0], [25, 3])


def test_base_stock_with_a_level_from_a_signal_and_a_share_of_the_gap():
    rule = in_shop(BaseStock(Order("order", "forecast", plus=("stock",), gain=0.5), bias={1: 0.0}))
    np.testing.assert_array_equal(rule.predict(np.array([10, 0, 0, 70], np.float32))[0], [30, 0])


def test_constant_by_name_by_value_and_in_the_middle():
    seen = np.zeros((3, 4), np.float32)
    for given in ({"order": 7.0, "price": 1.0}, [7.0, 1.0]):
        np.testing.assert_array_equal(in_shop(Constant(given)).predict(seen)[0], [[7, 1]] * 3)
    np.testing.assert_array_equal(in_shop(Constant()).predict(seen[0])[0], [25, 25])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: in_shop(Constant({"order": 7.0})), "says nothing of the actuator 'price'"),
        (lambda: in_shop(Constant([7.0, 51.0])), "is not an action"),
        (lambda: Constant().bind("CartPole-v1"), "say which action of CartPole-v1 is meant"),
        (lambda: Constant(2).bind("CartPole-v1"), "2 is not an action"),
        (lambda: PID(Loop(0, 0, 0.0, gain=1.0), time_step=1.0).bind("CartPole-v1"), "actions that are a flat Box"),
        (lambda: Order("order", 10.0, plus=()), "needs plus="),
    ],
)
def test_what_is_wrong_is_said(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_random_actions_are_in_the_space_legal_and_again_the_same():
    seen = np.zeros((500, 4), np.float32)
    first, again, other = (in_shop(Random(seed)).predict(seen)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() >= 0.0
    assert first.max() <= 50.0
    np.testing.assert_allclose(first.mean(axis=0), 25.0, atol=2.0)
    game = Random(0).bind("TicTacToe-v1")
    boards = np.zeros((100, *game.layout.observation.shape), game.layout.observation.dtype)
    masks = np.tile(np.array([0, 1, 0, 0, 0, 0, 0, 0, 1], np.int8), (100, 1))
    assert set(game.predict(boards, action_masks=masks)[0].tolist()) == {1, 8}


def test_evaluate_binds_a_controller_and_starts_it_anew_with_each_episode():
    upright = {"x_init": 0.1, "y_init": 0.1}
    envs = velocirl.make_vec("Pendulum-v1", 2, seed=3, device="python", params=upright, max_episode_steps=12)
    rule = PID(Loop(1, 0, 0.0, gain=-9.0, integral_time=0.5, derivative_time=0.3), time_step=0.05)
    result = velocirl.evaluate(rule, envs, episodes=4)
    again = velocirl.make_vec("Pendulum-v1", 2, seed=3, device="python", params=upright, max_episode_steps=12)
    observations, _ = again.reset()
    controllers, states, totals, returns = rule.bind("Pendulum-v1"), [None, None], np.zeros(2), []
    for step in range(24):
        actions = np.zeros((2, 1), np.float32)
        for copy in range(2):
            actions[copy], states[copy] = controllers.predict(observations[copy], states[copy])
        observations, rewards, _, truncated, _ = again.step(actions)
        totals += rewards
        if truncated.any():
            assert step in (11, 23)
            returns, states, totals = [*returns, *totals], [None, None], np.zeros(2)
    np.testing.assert_allclose(result.returns, returns, rtol=1e-6)
